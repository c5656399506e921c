"""The file of tokens, the look-up of a token, and tokens for one login."""

import hashlib
import json
import logging
import os
import threading
import time
from types import SimpleNamespace

import pytest

from arkml.errors import HiveError, HiveRefused, UsageError
from arkml.server.access import callers, credentials, token_file
from arkml.server.access.callers import AccessRole, Caller, WorkerGrant, WorkerTokens, digest_of
from arkml.server.access.credentials import Credentials
from arkml.server.access.one_time_tokens import LIFE_SECONDS, OneTimeTokens
from arkml.server.access.token_file import TokenFile
from arkml.server.serve_options import ServeOptions

ACT, READ, ADMIN = AccessRole.ACT, AccessRole.READ, AccessRole.ADMIN


@pytest.fixture
def file(tmp_path):
    return TokenFile(tmp_path)


@pytest.fixture(autouse=True)
def _look_at_every_request(monkeypatch):
    monkeypatch.setattr(credentials, "_LOOK_EVERY", 0.0)


def opened(data, token="", **options):
    return Credentials(ServeOptions(data, token=token, **options), WorkerTokens())


def test_a_token_has_256_random_bits_and_its_file_the_digest_alone(file):
    entry, token = file.add("alice", ACT, None)
    _, other = file.add("bob", READ, None)
    text = file.path.read_text()

    assert len(token) == len(other) == 43  # of base64, for 32 bytes
    assert token != other
    assert token not in text
    assert entry.sha256 == hashlib.sha256(token.encode()).hexdigest()
    assert entry.sha256 in text
    assert file.path.stat().st_mode & 0o777 == 0o600


def test_what_is_read_is_what_was_written(file):
    first, _ = file.add("alice", ACT, None)
    second, _ = file.add("bob", ADMIN, 60)

    assert file.read() == (first, second)
    assert first.expires_at == 0
    assert second.expires_at == second.created_at + 60
    assert file.revoke("alice") == first
    assert file.revoke(second.id) == second
    assert file.read() == ()
    assert file.path.exists()


def test_names_are_unique_and_plain(file):
    file.add("alice", ACT, None)

    with pytest.raises(UsageError, match="there is a token of that name"):
        file.add("alice", READ, None)
    for name in ("", "a\nb", "x" * 65, " a", "a/b"):
        with pytest.raises(UsageError, match="a token's name has 1 to 64 letters"):
            file.add(name, ACT, None)
    with pytest.raises(UsageError, match="there is no token 'bob'"):
        file.revoke("bob")


def test_commands_that_change_the_file_at_once_lose_nothing(tmp_path):
    def add(number):
        TokenFile(tmp_path).add(f"token {number}", ACT, None)

    threads = [threading.Thread(target=add, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert {one.name for one in TokenFile(tmp_path).read()} == {f"token {n}" for n in range(16)}


def test_a_file_without_end_is_refused(file):
    file.path.touch(0o600)
    os.truncate(file.path, 1 << 43)  # of holes

    with pytest.raises(HiveError, match="it has more than 10,000,000 bytes"):
        file.read()


ENTRY = {"id": "1", "name": "a", "role": "act", "sha256": "0" * 64, "created_at": 1}


@pytest.mark.parametrize(
    "content",
    [
        "", "[]", "{}", '{"version": 1}', '{"version": 2, "tokens": []}',
        '{"version": 1, "tokens": [1]}', '{"version": true, "tokens": []}',
        *(
            json.dumps({"version": 1, "tokens": [{**ENTRY, **wrong}]})
            for wrong in (
                {"role": "root"}, {"role": None}, {"sha256": "0" * 63}, {"sha256": 5}, {"id": ""},
                {"name": 1}, {"created_at": -1}, {"expires_at": 1.5}, {"expires_at": True},
                {"more": 1}, {"expires_at": 1 << 70}, {"name": "a\n"}, {"name": "a\x1b[2J"},
                {"name": ""}, {"id": "\x9b2J"},
            )
        ),
        json.dumps({"version": 1, "tokens": [ENTRY, ENTRY]}),
    ],
)  # fmt: skip
def test_a_damaged_file_is_one_sentence_when_a_hive_opens(file, content):
    file.path.write_text(content)
    file.path.chmod(0o600)

    with pytest.raises(HiveError, match=r"the tokens in \S+tokens.json cannot be read: \S+"):
        opened(file.path.parent)


def test_a_file_that_others_can_read_is_refused(file):
    file.add("alice", ACT, None)
    file.path.chmod(0o640)

    with pytest.raises(HiveError, match=r"open to other users \(mode 0640\): chmod 600"):
        opened(file.path.parent)


def test_a_token_that_is_made_or_revoked_counts_while_a_hive_serves(file):
    made = opened(file.path.parent, "operator")
    entry, token = file.add("alice", READ, None)
    found = made.find(digest_of(token))
    is_valid = found.is_valid()
    file.revoke("alice")

    assert (found.name, found.role, found.owner) == ("alice", READ, entry.id)
    assert is_valid
    assert not found.is_valid()
    assert made.find(digest_of(token)) is None


def test_a_token_expires(file, monkeypatch):
    made = opened(file.path.parent, "operator")
    _, token = file.add("alice", READ, 60)
    found = made.find(digest_of(token))
    before = found.is_valid()
    now = time.time()
    monkeypatch.setattr(credentials.time, "time", lambda: now + 61)

    assert before
    assert not found.is_valid()
    assert made.find(digest_of(token)) is None


def test_a_token_that_expired_is_told_so_and_others_are_not(file, monkeypatch):
    made = opened(file.path.parent, "operator")
    _, token = file.add("alice", READ, 60)
    made.find(digest_of(token))
    before = made.problem(digest_of(token))
    now = time.time()
    monkeypatch.setattr(credentials.time, "time", lambda: now + 61)

    assert before == made.problem(digest_of("other")) == "the token of the hive is missing or wrong"
    assert made.problem(digest_of(token)).startswith("token 'alice' of the hive has expired")


@pytest.mark.parametrize("seconds", [None, 60])
def test_a_token_that_is_renewed_owns_what_the_old_one_did(file, monkeypatch, seconds):
    made = opened(file.path.parent, "operator")
    entry, old = file.add("alice", ACT, seconds)
    file.add("bob", READ, None)
    now = time.time()
    monkeypatch.setattr(token_file.time, "time", lambda: now + 3_600)
    renewed, new = file.renew("alice")
    found = made.find(digest_of(new))

    assert (renewed.id, renewed.name, renewed.role) == (entry.id, "alice", ACT)
    assert renewed.expires_at == (renewed.created_at + 60 if seconds else 0)
    assert (found.owner, found.role) == (entry.id, ACT)
    assert made.find(digest_of(old)) is None
    assert [one.name for one in file.read()] == ["alice", "bob"]
    with pytest.raises(UsageError, match="there is no token 'carol'"):
        file.renew("carol")


def test_the_last_good_tokens_stay_valid_while_the_file_is_damaged(file, caplog):
    _, token = file.add("alice", READ, None)
    made = opened(file.path.parent)
    good = file.path.read_bytes()
    file.path.write_text("{")
    with caplog.at_level(logging.ERROR):
        found = [made.find(digest_of(token)), made.find(digest_of(token))]
    logged = [record.getMessage() for record in caplog.records]
    file.path.write_bytes(good.replace(b"alice", b"carol"))

    assert [one.name for one in found] == ["alice", "alice"]
    assert len(logged) == 1
    assert "cannot be read" in logged[0]
    assert made.find(digest_of(token)).name == "carol"


def test_the_operators_token_is_an_admin_and_wrong_ones_are_not_found(tmp_path):
    made = opened(tmp_path, "operator")

    assert made.are_needed
    found = made.find(digest_of("operator"))
    assert found is not None
    assert (found.role, found.name, found.owner) == (AccessRole.ADMIN, "operator", "")
    assert made.find(digest_of("wrong")) is None
    assert made.find(b"") is None


def test_a_hive_without_tokens_needs_none_until_its_file_appears_and_then_for_good(file):
    made = opened(file.path.parent)
    before = made.are_needed
    file.add("alice", ACT, None)
    during = made.are_needed
    file.path.unlink()

    assert (before, during, made.are_needed) == (False, True, True)


def test_who_came_without_a_token_may_stay_until_the_first_one_is_made(file):
    everyone = opened(file.path.parent).everyone
    before = everyone.is_valid()
    file.add("alice", ACT, None)

    assert (everyone.role, before, everyone.is_valid()) == (AccessRole.ADMIN, True, False)


def test_a_file_without_tokens_is_not_an_open_hive(file):
    file.add("alice", ACT, None)
    file.revoke("alice")

    assert opened(file.path.parent).are_needed


@pytest.mark.parametrize(
    "options",
    [
        {"host": "0.0.0.0"}, {"host": "hive.example"}, {"public_url": "https://hive.example"},
        {"trusted_proxies": ("10.0.0.1",)},
    ],
)  # fmt: skip
def test_a_hive_that_others_reach_takes_tokens(file, options):
    with pytest.raises(UsageError, match=r"is open to others: make tokens .* ARKML_HIVE_TOKEN"):
        opened(file.path.parent, **options)
    opened(file.path.parent, "operator", **options)
    file.add("alice", ACT, None)
    opened(file.path.parent, **options)


def test_a_workers_token_is_a_caller_without_a_role(tmp_path):
    workers = WorkerTokens()
    made = Credentials(ServeOptions(tmp_path, token="operator"), workers)
    grant = WorkerGrant("run", "0" * 64)
    token = workers.issue(grant)
    found = made.find(digest_of(token))
    is_valid = found.is_valid()
    workers.revoke(token)

    assert (found.role, found.grant) == (None, grant)
    assert (is_valid, found.is_valid()) == (True, False)


ENOUGH = [
    (role, method, enough, status)
    for method, enough, statuses in (
        ("GET", ACT, {ACT: 0, READ: 0, ADMIN: 0, None: 401}),
        ("HEAD", READ, {ACT: 403, READ: 0, ADMIN: 0, None: 401}),
        ("POST", ACT, {ACT: 0, READ: 403, ADMIN: 0, None: 401}),
        ("GET", ADMIN, {ACT: 403, READ: 403, ADMIN: 0, None: 401}),
        ("POST", ADMIN, {ACT: 403, READ: 403, ADMIN: 0, None: 401}),
    )
    for role, status in statuses.items()
]


@pytest.mark.parametrize(("role", "method", "enough", "status"), ENOUGH)
def test_a_role_is_enough_for_what_it_says(role, method, enough, status):
    caller = Caller(role, "ci")
    if not status:
        caller.require(enough, method, "/runs")
        return
    with pytest.raises(HiveRefused) as refused:
        caller.require(enough, method, "/runs")

    assert refused.value.status == status


def test_runs_belong_to_the_tokens_that_started_them():
    alice, operator = Caller(ACT, "alice", "1"), Caller(ADMIN)
    alice.require_own("run", "1", "stop")
    operator.require_own("run", "1", "stop")

    for owner in ("2", ""):
        with pytest.raises(HiveRefused, match="may stop the runs alone that it started") as refused:
            alice.require_own("run", owner, "stop")
        assert refused.value.status == 403
    with pytest.raises(HiveRefused):
        Caller(ACT, "nameless", "").require_own("run", "", "stop")
    with pytest.raises(HiveRefused):
        Caller(READ, "alice", "1").require_own("run", "1", "stop")


async def test_a_stream_ends_once_its_caller_is_not_valid_any_more(monkeypatch):
    monkeypatch.setattr(callers, "_LOOK_EVERY", 0.001)
    answers = iter([True, True, False])
    await callers.until_invalid(Caller(READ, "alice", is_valid=lambda: next(answers)))

    assert list(answers) == []


def test_a_one_time_token_is_taken_once_and_for_ten_minutes():
    clock = SimpleNamespace(now=0.0)
    tokens = OneTimeTokens(clock=lambda: clock.now)
    first, second, third = (tokens.issue(one) for one in (b"operator", b"operator", b"alice"))
    clock.now = LIFE_SECONDS - 1
    taken = [tokens.take(digest_of(one)) for one in (first, first, third, "wrong")]
    clock.now = LIFE_SECONDS

    assert taken == [b"operator", None, b"alice", None]
    assert tokens.take(digest_of(second)) is None


def test_there_are_not_many_one_time_tokens():
    tokens = OneTimeTokens()
    issued = [tokens.issue(b"operator") for _ in range(1_000)]
    taken = [tokens.take(digest_of(one)) for one in issued]

    assert taken[-64:] == [b"operator"] * 64
    assert not any(taken[:-64])


def test_the_directory_of_a_first_token_is_its_owners_alone(tmp_path):
    data = tmp_path / "new" / "hive"
    TokenFile(data).add("alice", AccessRole.ACT, None)

    assert data.stat().st_mode & 0o777 == 0o700


def test_a_token_that_root_makes_can_be_read_by_the_service(tmp_path):
    service = (65_534, 65_534) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    os.chown(tmp_path, *service)
    data = tmp_path / "lib" / "hive"
    TokenFile(data).add("alice", AccessRole.ACT, None)

    for path in (data.parent, data, data / "tokens.json", data / "tokens.json.lock"):
        assert (path.stat().st_uid, path.stat().st_gid) == service


def test_a_link_of_the_service_gives_it_no_file_of_root(tmp_path):
    kept = tmp_path / "kept"
    kept.write_bytes(b"of another")
    data = tmp_path / "hive"
    data.mkdir(0o700)
    (data / "tokens.json.lock").symlink_to(kept)
    if os.geteuid() == 0:
        os.chown(data, 65_534, 65_534)

    with pytest.raises(HiveError, match=r"tokens\.json\.lock is a symbolic link"):
        TokenFile(data).add("alice", AccessRole.ACT, None)
    assert kept.stat().st_uid == os.geteuid()


def test_a_second_name_of_a_file_is_not_given_away(tmp_path, monkeypatch):
    kept = tmp_path / "kept"
    kept.write_bytes(b"of another")
    data = tmp_path / "hive"
    data.mkdir(0o700)
    (data / "tokens.json.lock").hardlink_to(kept)
    given = []
    monkeypatch.setattr(token_file, "owner_to_be", lambda _: (os.geteuid(), os.getegid()))
    monkeypatch.setattr(os, "fchown", lambda file, *_: given.append(os.fstat(file).st_ino))
    TokenFile(data).add("alice", AccessRole.ACT, None)

    assert kept.stat().st_ino not in given
    assert given  # the file of the tokens


def test_tokens_are_read_from_a_file_only(tmp_path):
    os.mkfifo(tmp_path / "tokens.json", 0o600)

    with pytest.raises(HiveError, match="cannot be read: it is not a plain file"):
        TokenFile(tmp_path).read()
