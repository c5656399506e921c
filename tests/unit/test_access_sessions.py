"""Sessions of browsers, and the pace of logins."""

from types import SimpleNamespace

import pytest

from arkml.server.access import credentials
from arkml.server.access.browser_sessions import IDLE_SECONDS, BrowserSessions
from arkml.server.access.callers import AccessRole, WorkerTokens, digest_of
from arkml.server.access.credentials import Credentials
from arkml.server.access.login_pace import LoginPace
from arkml.server.access.token_file import TokenFile
from arkml.server.serve_options import ServeOptions


@pytest.fixture
def clock():
    return SimpleNamespace(now=1_000.0)


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setattr(credentials, "_LOOK_EVERY", 0.0)
    return TokenFile(tmp_path)


@pytest.fixture
def source(file):
    return digest_of(file.add("alice", AccessRole.READ, None)[1])


@pytest.fixture
def sessions(file, source, clock):  # noqa: ARG001  the token is there when the hive opens
    known = Credentials(ServeOptions(file.path.parent), WorkerTokens())
    return BrowserSessions(known, clock=lambda: clock.now)


@pytest.fixture
def pace(clock):
    return LoginPace(clock=lambda: clock.now)


def test_a_session_has_the_rights_of_its_token_until_it_is_ended(sessions, source):
    first, second = sessions.begin(source), sessions.begin(source)
    found = sessions.find(first)
    before = found.is_valid()
    sessions.end(first)
    sessions.end(first)

    assert first != second
    assert len(first) == 43
    assert (found.name, found.role) == ("alice", AccessRole.READ)
    assert (before, found.is_valid()) == (True, False)
    assert sessions.find(first) is None
    assert sessions.find(second).is_valid()


@pytest.mark.parametrize("text", ["", "wrong", "\udc80", "x" * 10_000])
def test_other_texts_are_not_sessions(sessions, source, text):
    sessions.begin(source)

    assert sessions.find(text) is None


def test_an_id_is_kept_as_a_digest(sessions, source):
    session_id = sessions.begin(source)

    assert session_id not in repr(vars(sessions))


def test_a_session_ends_twelve_hours_after_its_last_request(sessions, source, clock):
    session_id = sessions.begin(source)
    clock.now += IDLE_SECONDS - 1
    found = sessions.find(session_id)
    clock.now += IDLE_SECONDS - 1
    later = found.is_valid()
    clock.now += 1

    assert IDLE_SECONDS == 12 * 3_600
    assert later
    assert not found.is_valid()
    assert sessions.find(session_id) is None


def test_a_stream_that_asks_if_it_may_stay_does_not_keep_its_session_alive(sessions, source, clock):
    session_id = sessions.begin(source)
    found = sessions.find(session_id)
    clock.now += IDLE_SECONDS - 1
    asked = found.is_valid()
    clock.now += 1

    assert asked
    assert not found.is_valid()


def test_a_session_ends_with_its_token(sessions, source, file):
    session_id = sessions.begin(source)
    found = sessions.find(session_id)
    file.revoke("alice")

    assert not found.is_valid()
    assert sessions.find(session_id) is None


def test_a_token_has_64_sessions_the_last_used_ones(sessions, source, clock):
    begun = []
    for _ in range(200):
        clock.now += 1
        begun.append(sessions.begin(source))
        sessions.find(begun[0])

    alive = [one for one in begun if sessions.find(one) is not None]
    assert alive == [begun[0], *begun[-63:]]


def test_five_logins_may_fail_and_then_each_waits_longer(pace, clock):
    waits = []
    for _ in range(14):
        waits.append(pace.wait("10.0.0.1"))
        clock.now += waits[-1]
        pace.fail("10.0.0.1")

    assert waits == [0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert pace.wait("10.0.0.2") == 0


def test_a_login_that_succeeds_and_a_quarter_of_an_hour_forget_failures(pace, clock):
    for _ in range(9):
        pace.fail("10.0.0.1")
        pace.fail("10.0.0.2")
    pace.succeed("10.0.0.1")
    waits = pace.wait("10.0.0.1"), pace.wait("10.0.0.2")
    clock.now += 901

    assert waits == (0, 16)
    assert pace.wait("10.0.0.2") == 0


def test_one_network_counts_as_one_address(pace):
    for number in range(6):
        pace.fail(f"2001:db8:1:2::{number}")
        pace.fail(["10.0.0.1", "::ffff:10.0.0.1"][number % 2])

    assert pace.wait("2001:db8:1:2:ffff::") > 0
    assert pace.wait("2001:db8:1:3::") == 0
    assert pace.wait("10.0.0.1") > 0


def test_failures_of_many_addresses_are_slowed_in_all(pace, clock):
    failed = 0
    for number in range(1_000):
        if not pace.wait(f"10.0.{number >> 8}.{number & 255}"):
            pace.fail(f"10.0.{number >> 8}.{number & 255}")
            failed += 1
    wait = pace.wait("192.0.2.1")
    clock.now += wait

    assert failed == 100
    assert wait == pytest.approx(0.5)
    assert pace.wait("192.0.2.1") == pytest.approx(0.0, abs=1e-6)


def test_addresses_that_failed_take_bounded_memory(pace, clock):
    for number in range(10_000):
        clock.now += 1
        pace.fail(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    pace.fail("not an address" * 1_000)

    assert len(pace._failures) == 1_024
    assert max(map(len, pace._failures)) <= 64
