"""What a client makes of a hive that fails: no row lost, none twice, and nobody waits."""

import asyncio
import hashlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import numpy as np
import pytest
from tests.integration.scripted_hive import (
    ScriptedHive,
    cut,
    cut_after,
    endless,
    forget,
    plain,
    raw,
    status,
    take,
)
from tests.waiting import eventually
from tools.houses import PYTHONPATH

from arkml.errors import HiveError, HiveRefused, HiveUnreachable, ProtocolError, RunGone
from arkml.hive import NICE, give_way, presence
from arkml.hive.address import Address
from arkml.hive.client import HiveClient
from arkml.hive.protocol.audit import checksum, row_hashes
from arkml.hive.protocol.result_messages import EvaluationReport
from arkml.hive.protocol.rows import NO_ROW, RowKind
from arkml.hive.protocol.runs import BATCH_ROWS, HealthReply, Role, RunInfo, RunRequest, Status
from arkml.hive.protocol.settings import Settings
from arkml.hive.transport import HiveTransport

FEATURES, ACTIONS = 3, 2


@pytest.fixture
def hive():
    made = ScriptedHive()
    yield made
    made.close()


@pytest.fixture
def client(hive):
    with HiveClient(hive.locate) as made:
        yield made


def join(client, *, block=False):
    return client.join(
        "run", FEATURES, ACTIONS, role=Role.ACT, block=block, sync=False,
        on_policy=lambda *_: None,
    ).result(300)  # fmt: skip


def append(session, first, count):
    """Append rows whose rewards count on from `first`."""
    numbers = np.arange(first, first + count)
    session.outbox.append(
        numbers.astype("u8"), numbers.astype("u8"), 1, numbers.astype("f4"),
        np.zeros(count, "u4"), np.ones((count, FEATURES), "f4"), np.ones((count, ACTIONS), "f4"),
    )  # fmt: skip


def settled(session):
    return session.settled == session.outbox.appended


def checksum_of(hive, without=()):
    """The checksum that the hive's memory has, without the rows of these rewards."""
    found = 0
    for columns in hive.bodies.values():
        kept = columns.take(~np.isin(columns.reward, without))
        found ^= checksum(row_hashes(1, RowKind.TRAINING, kept))
    return found


def test_a_session_has_the_noise_that_its_hive_says(client):
    assert join(client).is_pink


@pytest.mark.parametrize(
    "replies",
    [
        [status(500), status(503), status(429)],
        [cut, cut],
        [cut_after],
        [cut_after, status(500), cut],
        [raw(b"?!?!")],
        [status(200)],
        [status(507)],
        [status(409, expected=1)],
    ],
    ids=["errors", "cut", "cut after", "mixed", "garbage", "no numbers", "full", "renumbered"],
)
def test_rows_arrive_once_and_in_order_whatever_answers_there_are(hive, client, replies):
    hive.replies = list(replies)
    session = join(client)
    for place in range(5):
        append(session, 10 * place, 10)
        eventually(lambda: hive.asked > 0)
    eventually(lambda: settled(session))

    assert hive.rewards() == list(map(float, range(50)))
    assert session.ledger.accepted == 50
    assert session.ledger.discarded == 0
    assert session.ledger.checksum == checksum_of(hive)
    assert session.failure is None


def test_a_hive_that_forgot_the_session_is_joined_again(hive, client):
    session = join(client)
    append(session, 0, 5)
    eventually(lambda: settled(session))
    hive.replies = [forget]
    append(session, 5, 5)
    eventually(lambda: settled(session))

    assert hive.joins == 2
    assert session.sid == "s2"
    assert session.ledger.renewed == 1
    assert hive.rewards() == list(map(float, range(10)))


def test_a_body_that_will_never_be_taken_is_counted_and_the_next_ones_go_on(hive, client):
    hive.replies = [status(422)]
    session = join(client)
    append(session, 0, 5)
    eventually(lambda: settled(session))
    append(session, 5, 5)
    eventually(lambda: settled(session) and session.ledger.accepted == 5)

    assert session.ledger.discarded == 5
    assert [len(hive.bodies[number]) for number in (1, 2)] == [0, 5]
    assert hive.rewards() == list(map(float, range(5, 10)))
    assert session.failure is None


def test_a_hive_that_does_not_let_us_in_ends_the_session_with_its_reason(hive, client):
    hive.replies = [status(403)]
    session = join(client)
    append(session, 0, 5)
    eventually(lambda: session.failure is not None)

    assert session.failure == "scripted"
    assert not session.must_wait()


def test_rows_that_cannot_go_anywhere_are_bounded_and_the_oldest_are_given_up(hive, client):
    hive.gate.clear()
    session = join(client)
    session.outbox.max_rows = 20_000
    for place in range(200):
        append(session, 1_000 * place, 1_000)
        assert session.outbox.outstanding <= 2 * 20_000 + BATCH_ROWS
    hive.gate.set()
    eventually(lambda: session.outbox.is_empty and settled_all(session, 200_000))

    assert session.outbox.dropped > 0
    assert session.ledger.accepted + session.outbox.dropped == 200_000
    assert len(hive.rewards()) == session.ledger.accepted


def settled_all(session, rows):
    return session.ledger.accepted + session.outbox.dropped == rows


def test_a_guest_waits_for_credit_and_goes_on_when_there_is_some(hive, client):
    hive.credit = 0
    session = join(client, block=True)
    waits = session.must_wait()
    waited = session.wait(0.2)
    hive.credit = 100
    eventually(lambda: session.wait(0.1))

    assert waits
    assert not waited
    assert not session.must_wait()


class Alarm(Exception):
    """Raised by a signal handler."""


def test_a_signal_that_raises_while_a_guest_waits_leaves_nothing_locked(hive, client):
    def ring(*_):
        raise Alarm

    hive.credit = 0
    session = join(client, block=True)
    before = signal.signal(signal.SIGALRM, ring)
    rung = 0
    try:
        for place in range(200):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.001 + 0.00002 * place)
                eventually(lambda: session.wait(0.005), timeout=300)
            except Alarm:
                rung += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    hive.credit = 100
    eventually(lambda: session.wait(0.1))

    assert rung == 200


def test_closing_does_not_wait_for_an_answer_that_never_comes(hive):
    client = HiveClient(hive.locate)
    session = join(client)
    hive.gate.clear()
    append(session, 0, 5)
    eventually(lambda: hive.asked > 0)
    client.close()

    assert session.ended.done()


def test_a_hive_that_is_not_there_is_said_to_be_so():
    with HiveClient(lambda: Address("127.0.0.1", 9)) as client, pytest.raises(HiveUnreachable):
        client.health().result(300)


def test_a_hive_that_comes_back_is_found_again(hive):
    where = [Address("127.0.0.1", 9)]
    with HiveClient(lambda: where[0]) as client:
        with pytest.raises(HiveUnreachable):
            client.health().result(300)
        where[0] = hive.locate()
        session = join(client)
        where[0] = Address("127.0.0.1", 9)
        hive.replies = [cut, take]
        append(session, 0, 5)
        eventually(lambda: hive.asked == 1)
        where[0] = hive.locate()
        eventually(lambda: settled(session))

    assert hive.rewards() == list(map(float, range(5)))


STANDING = {"acked": 0, "credit": 9, "hold": False, "policy_version": 0}


def says(**fields):
    """An answer to rows that are taken, with these fields in place of the right ones."""
    told = {"accepted": 10, "refused": [], "refused_n": 0, "duplicate": False}
    return raw(json.dumps({**STANDING, **told, **fields}).encode())


@pytest.mark.parametrize(
    "reply",
    [
        says(refused_n=3, refused=None),
        says(refused_n=1, refused=[[99_999, "not there"]]),
        says(refused_n=11),
        says(refused_n=-1),
        says(refused_n=1, refused=[7]),
        says(credit="much"),
        says(credit=float("inf")),
        says(policy_version=-1),
        says(policy_version=1 << 70),
        raw(b"[" * 200_000),
        raw(b"[]"),
        raw(b""),
        raw(b'{"acked": "\xff"}'),
        raw(b"{}", content_length=1 << 40),
        raw(b"rows", content_encoding="gzip"),
        status(409, expected=-1),
        status(409, expected=1 << 70),
        status(409, expected="1"),
        status(409),
        raw(b"?", code=418, keeps=False, content_type="text/plain; charset=none"),
    ],
)
def test_no_answer_however_mad_ends_a_session_or_has_a_row_twice(hive, client, reply):
    hive.replies = [reply]
    session = join(client)
    append(session, 0, 10)
    eventually(lambda: settled(session))
    append(session, 10, 10)
    eventually(lambda: settled(session))

    assert session.failure is None
    assert not session.ended.done()
    assert hive.rewards()[-10:] == list(map(float, range(10, 20)))
    assert session.ledger.accepted + session.ledger.discarded == 20
    assert len(hive.rewards()) == session.ledger.accepted


@pytest.mark.parametrize(
    "answer",
    [
        b"?!",
        b"[]",
        b"{}",
        json.dumps(STANDING | {"index": 1}).encode(),
        json.dumps(STANDING | {"sid": 7, "index": 1}).encode(),
        json.dumps(STANDING | {"sid": "s", "index": "one"}).encode(),
        json.dumps({"sid": "s", "index": 1, "acked": 0}).encode(),
    ],
)
def test_a_hive_that_lets_us_in_with_nonsense_is_no_hive(hive, client, answer):
    hive.scripts["sessions"] = [raw(answer)]

    with pytest.raises(ProtocolError):
        join(client)


@pytest.mark.parametrize(
    "reply",
    [raw(b"{}"), raw(b"?"), raw(b'{"ids": [1]}'), raw(b'{"ids": {"guest/a": "x"}}'),
     raw(b'{"ids": {"guest/a": -1}}'), status(422)],
)  # fmt: skip
def test_metrics_whose_names_the_hive_does_not_take_are_lost_and_their_rows_are_not(
    hive, client, reply
):
    hive.scripts["names"] = [reply, plain]
    session = join(client)
    session.outbox.note([(NO_ROW, "guest/a", 1.0)])
    append(session, 0, 5)
    eventually(lambda: settled(session))
    session.outbox.note([(NO_ROW, "guest/a", 2.0)])
    append(session, 5, 5)
    eventually(lambda: settled(session))
    metrics = [value for number in sorted(hive.bodies)
               for value in hive.bodies[number].meta["value"].tolist()]  # fmt: skip

    assert metrics == [2.0]
    assert hive.rewards() == list(map(float, range(10)))
    assert session.failure is None


def test_a_metric_that_the_hive_refuses_is_told_once_and_costs_no_other_one(hive, client, caplog):
    refusing = raw(json.dumps({"ids": {"good": 7}, "refused": {"": "no letters"}}).encode())
    hive.scripts["names"] = [refusing]
    session = join(client)
    for place in range(3):
        session.outbox.begin()
        append(session, 5 * place, 5)
        session.outbox.note([(5 * place + 1, "", 1.0), (5 * place + 2, "good", 2.0)])
        session.outbox.end()
        eventually(lambda: settled(session))
    metas = [hive.bodies[number].meta.tolist() for number in sorted(hive.bodies)]
    told = [record.message for record in caplog.records if "no letters" in record.message]

    assert [meta for body in metas for meta in body] == [(2, 7, 2.0)] * 3
    assert len(hive.times["names"]) == len(told) == 1


def test_metrics_that_are_lost_are_told_once_with_a_harmless_short_name(hive, client, caplog):
    hive.scripts["names"] = [status(422)]
    session = join(client)
    for place in range(4):
        session.outbox.note([(NO_ROW, "\x1b[2J\n" * 10_000 + str(place), 1.0)])
        append(session, 5 * place, 5)
        eventually(lambda: settled(session))
    told = [message for message in caplog.messages if "metrics" in message]

    assert len(hive.times["names"]) == 4
    assert len(told) == 1
    assert told[0].isprintable()
    assert len(told[0]) < 500


def test_metrics_that_are_made_up_without_end_are_asked_for_a_bounded_number_of_times(hive, client):
    def refuse(hive, handler, body):
        hive.say(handler, 200, {"ids": {}, "refused": dict.fromkeys(json.loads(body)["names"], "")})

    hive.scripts["names"] = [refuse]
    session = join(client)
    for place in range(8):
        session.outbox.note([(NO_ROW, f"{place} {number}", 1.0) for number in range(300)])
        append(session, 5 * place, 5)
        eventually(lambda: settled(session))

    assert len(hive.times["names"]) == 4


def policy(version, data=b"weights", *, digest=None):
    """A policy as a hive serves it."""
    digest = digest or hashlib.sha256(data).hexdigest()
    return raw(data, x_arkml_version=version, x_arkml_sha256=digest)


@pytest.mark.parametrize(
    "reply",
    [
        policy(3, digest="damaged"),
        policy("new"),
        policy(""),
        policy(-1),
        policy(1),
        raw(b"?"),
        raw(b"", content_length=1 << 40),
        status(403),
        cut,
    ],
)
def test_a_policy_that_cannot_be_used_is_asked_for_again_without_haste(hive, client, reply):
    received, came = [], threading.Event()

    def receive(version, data):
        received.append((version, data))
        if version == 4:
            came.set()

    quiet = status(204)
    hive.scripts["policy"] = [policy(1), *(reply,) * 4, policy(4), quiet]
    client.join("run", FEATURES, ACTIONS, on_policy=receive).result(300)
    arrived = came.wait(300)
    times = hive.times["policy"]

    assert arrived
    assert received == [(1, b"weights"), (4, b"weights")]
    assert times[5] - times[1] > 0.2


def test_rows_that_a_hive_refuses_are_counted_and_are_no_part_of_the_checksum(hive, client):
    hive.replies = [says(refused_n=2, refused=[[1, "not finite"], [3, "out of order"]])]
    session = join(client)
    append(session, 0, 10)
    eventually(lambda: settled(session))

    assert (session.ledger.accepted, session.ledger.refused) == (8, 2)
    assert session.ledger.checksum == checksum_of(hive, without=[1.0, 3.0])


@pytest.mark.parametrize("code", [404, 410])
def test_a_run_that_is_gone_ends_the_session_and_nobody_waits(hive, client, code):
    hive.credit = 0
    session = join(client, block=True)
    hive.scripts["sessions"] = [status(code)]
    hive.scripts["beat"] = [status(code)]
    append(session, 0, 10)
    hive.replies = [status(code)]
    eventually(lambda: session.wait(0.1))

    assert "run is gone" in session.failure
    session.ended.result(300)


def test_a_run_that_is_gone_cannot_be_joined(hive, client):
    hive.scripts["sessions"] = [status(404)]

    with pytest.raises(RunGone):
        join(client)


def test_joining_again_is_tried_until_it_goes(hive, client):
    session = join(client)
    hive.replies = [status(410)] * 4
    hive.scripts["sessions"] = [status(503), cut, raw(b"?"), plain]
    append(session, 0, 10)
    eventually(lambda: settled(session))

    assert session.sid == "s2"
    assert hive.rewards() == list(map(float, range(10)))
    assert session.failure is None


def test_a_guest_that_waits_hears_of_a_hive_that_forgot_it(hive, client):
    hive.credit = 0
    session = join(client, block=True)
    hive.scripts["beat"] = [forget, plain]
    eventually(lambda: session.wait(0.05) or hive.joins == 2)
    hive.credit = 10
    eventually(lambda: session.wait(0.05))

    assert session.sid == "s2"
    assert session.ledger.renewed == 1


def test_a_body_goes_out_under_the_number_that_the_hive_expects(hive, client):
    hive.replies = [status(409, expected=7)]
    session = join(client)
    append(session, 0, 5)
    eventually(lambda: settled(session))
    append(session, 5, 5)
    eventually(lambda: settled(session))

    assert sorted(hive.bodies) == [7, 8]
    assert hive.rewards() == list(map(float, range(10)))


def test_one_body_is_on_its_way_at_a_time_and_the_frames_do_not_wait_for_it(hive, client):
    hive.gate.clear()
    session = join(client)
    for place in range(10):  # no answer comes before they are all there
        append(session, BATCH_ROWS * place, BATCH_ROWS)
    eventually(lambda: hive.asked == 1)
    hive.gate.set()
    eventually(lambda: settled(session))

    assert hive.most_at_once == 1
    assert sorted(hive.bodies) == list(range(1, 11))
    assert hive.rewards() == list(map(float, range(10 * BATCH_ROWS)))


WIDE = 1_024
LIMIT = 64 << 20
"""Bytes of rows that wait to go out, as the protocol has it."""


@pytest.mark.parametrize("away", ["hangs", "refuses", "is not there"])
def test_a_hive_that_is_away_costs_64_mib_and_the_oldest_rows(hive, away):
    where = [hive.locate()]
    with HiveClient(lambda: where[0]) as client:
        session = client.join("run", WIDE, 1, block=True, on_policy=lambda *_: None).result(300)
        if away == "hangs":
            hive.gate.clear()
        elif away == "is not there":
            where[0] = Address("127.0.0.1", 9)
            hive.replies = [cut] * 2
        else:
            hive.scripts["rows"] = [status(503)]
        rows = np.zeros((BATCH_ROWS, WIDE), "f4")
        numbers = np.zeros(BATCH_ROWS, "u4")
        tracemalloc.start()
        for place in range(12):
            reward = np.arange(place * BATCH_ROWS, (place + 1) * BATCH_ROWS).astype("f4")
            session.outbox.append(numbers, numbers, 1, reward, numbers, rows, rows[:, :1])
            # Until the client has dropped the oldest rows: a writer that is twice as far ahead of
            # it loses its newest ones.
            eventually(lambda: session.outbox.outstanding <= session.outbox.max_rows)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        hive.credit = 100
        where[0] = hive.locate()
        hive.scripts.clear()
        hive.gate.set()
        eventually(lambda: not (session.outbox.outstanding or session.must_wait()))
        rewards = hive.rewards()

    assert peak < 3 * LIMIT
    assert session.outbox.dropped == hive.dropped > 0
    assert session.ledger.accepted + session.outbox.dropped == 12 * BATCH_ROWS
    last = np.arange(11 * BATCH_ROWS, 12 * BATCH_ROWS)
    assert np.array_equal(rewards[-BATCH_ROWS:], last)
    assert sorted(hive.bodies) == list(range(1, len(hive.bodies) + 1))


def warnings_of(caplog):
    """What was logged so far, of WARNING and above."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize(
    ("away", "told"),
    [
        ("is not there", "no hive answers at 127.0.0.1:9"),
        ("hangs", "it has not answered for"),
        ("is full", "it takes nothing, scripted"),
    ],
)
def test_a_hive_that_is_gone_is_told_once_and_once_more_when_it_is_back(
    hive, caplog, away, told, block
):
    where, hang = [hive.locate()], threading.Event()
    with HiveClient(lambda: where[0]) as client:
        session = join(client, block=block)
        append(session, 0, 5)
        eventually(lambda: settled(session))
        if away == "is not there":
            where[0] = Address("127.0.0.1", 9)
            hive.scripts = {route: [cut] for route in ("rows", "policy", "beat", "health")}
        elif away == "hangs":
            hang_up = [lambda *_: hang.wait(3600)]
            hive.scripts = dict.fromkeys(("rows", "policy", "beat", "health"), hang_up)
        else:
            hive.scripts = {"rows": [status(507)]}
        gone = time.monotonic()
        append(session, 5, 5)
        eventually(lambda: client.is_gone)
        append(session, 10, 5)
        eventually(lambda: hive.times["rows"][-1] > gone or away == "is not there")
        hive.scripts.clear()
        hang.set()
        where[0] = hive.locate()
        eventually(lambda: not client.is_gone)
    first, *between, last = warnings_of(caplog)

    assert first.startswith(f"the hive is gone: {told}")
    assert between == []
    assert last == "the hive is back"


def test_a_request_that_waits_without_a_session_is_told_until_there_is_an_answer(hive, caplog):
    hang = threading.Event()

    def late(_, handler, body):
        hang.wait(3600)
        hive.plainly("health", handler, body)

    with HiveClient(hive.locate) as client:
        hive.scripts = {"health": [late]}
        asked = client.health()
        eventually(lambda: client.silence)
        silence = client.silence
        hive.scripts.clear()
        hang.set()
        asked.result(300)
        client.join("run", 3, 2, on_policy=lambda *_: None).result(300)
        eventually(lambda: not client.is_gone)
    first, last = warnings_of(caplog)

    assert silence.startswith(f"the hive at 127.0.0.1:{hive.port} has not answered for ")
    assert first.startswith(f"the hive at 127.0.0.1:{hive.port} does not answer: it has not")
    assert last == "the hive is back"
    assert client.silence == ""


async def test_a_hive_is_back_once_it_answers_and_not_when_its_watch_begins_anew(
    monkeypatch, caplog
):
    """At the end of a training whose hive was killed the log said that it was back."""
    monkeypatch.setattr(presence, "_INTERVAL", 0)

    class Gone:
        answered, trouble, waiting = 0.0, "", 0

        async def send(self, *_):
            raise HiveUnreachable("no hive answers")

        def refusal(self, _):
            return ""

    watched = presence.Presence(Gone())
    for silence in (-1, 3600):  # the first watch asks at once, the second one not yet
        monkeypatch.setattr(presence, "_SILENCE", silence)
        needed = iter((True, True, False, False))
        await watched.watch(partial(next, needed))

    assert watched.is_gone
    assert warnings_of(caplog) == [
        "the hive is gone: no hive answers (rows wait for it, and policies stay)"
    ]


def test_a_hive_that_is_not_there_is_the_error_of_a_request_and_no_warning(caplog):
    with HiveClient(lambda: Address("127.0.0.1", 9)) as client:
        for _ in range(3):
            with pytest.raises(HiveUnreachable):
                client.health().result(300)

    assert warnings_of(caplog) == []


def test_a_hive_that_is_slow_with_rows_is_not_gone(hive, client, caplog):
    session = join(client)
    hive.gate.clear()
    append(session, 0, 5)
    eventually(lambda: len(hive.times.get("health", [])) >= 3)
    hive.gate.set()
    eventually(lambda: settled(session))

    assert not client.is_gone
    assert warnings_of(caplog) == []


LOUD = """
import logging, sys, threading
sys.path.insert(0, {root!r})
logging.basicConfig(level=logging.DEBUG, stream=sys.stdout, format="%(name)s %(message)s")
import httpx
from arkml.hive.client import HiveClient
from tests.integration.scripted_hive import ScriptedHive

hive = ScriptedHive()
with HiveClient(hive.locate) as client:
    client.join("run", 3, 2, on_policy=lambda *_: None).result(300)
    for _ in range(20):
        client.health().result(300)
print("of the program:", flush=True)
httpx.get(f"http://127.0.0.1:{{hive.port}}/v1/health")
hive.close()
"""


def test_a_program_that_logs_everything_hears_of_its_own_requests_and_not_of_ours():
    root = Path(__file__).parents[2]
    script = LOUD.format(root=str(root))
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300,
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
    )  # fmt: skip
    ours, theirs = done.stdout.split("of the program:")

    assert "httpx" not in ours
    assert "httpcore" not in ours
    assert "httpx HTTP Request: GET" in theirs
    assert "httpcore.http11 send_request_headers.started" in theirs


def test_versions_that_are_loaded_while_answers_come_open_the_gate_once(hive, client):
    before = sys.getswitchinterval()
    hive.credit = 0
    session = join(client, block=True)
    errors = []

    def load():
        try:
            for version in range(3_000):
                session.loaded(version)
        except RuntimeError as error:
            errors.append(error)

    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=load) for _ in range(3)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            session.wait(0.001)
    finally:
        sys.setswitchinterval(before)

    assert errors == []
    assert session.failure is None


@pytest.mark.parametrize("stop", [False, True])
def test_who_leaves_sends_what_is_left_and_says_so(hive, client, stop):
    hive.replies = [status(503), cut_after]
    session = join(client)
    append(session, 0, 7)
    session.leave(stop=stop).result(300)

    assert hive.rewards() == list(map(float, range(7)))
    assert hive.left == [{"stop": stop}]
    session.leave(stop=True).result(300)
    assert hive.left == [{"stop": stop}]


def test_a_session_whose_client_is_closed_takes_no_more_rows(hive):
    client = HiveClient(hive.locate)
    session = join(client, block=True)
    client.close()
    client.close()
    append(session, 0, 2 * BATCH_ROWS)
    may_go_on = session.wait(300)
    session.leave(stop=False).result(300)

    assert session.failure is not None
    assert may_go_on
    with pytest.raises(HiveUnreachable):
        client.health().result(300)


@pytest.mark.parametrize("route", ["health", "sessions", "policy", "beat", "names"])
def test_closing_is_not_held_up_by_an_answer_that_hangs(hive, route):
    hang = threading.Event()
    hive.scripts[route] = [lambda *_: hang.wait(3600)]
    hive.credit = 0
    client = HiveClient(hive.locate)
    asked = [client.health()] if route == "health" else []
    if route == "sessions":
        asked.append(client.join("run", FEATURES, ACTIONS, on_policy=lambda *_: None))
    elif route != "health":
        session = join(client, block=True)
        session.outbox.note([(NO_ROW, "guest/a", 1.0)])
        append(session, 0, 5)
    eventually(lambda: route in hive.times or (route == "beat" and session.wait(0.05)))
    client.close()
    hang.set()

    assert all(future.done() for future in asked)


def test_what_has_just_been_started_when_a_client_closes_begins_before_it_is_cancelled(hive):
    """As a connection that is made: Python warns of a coroutine that was never awaited."""
    client, begun = HiveClient(hive.locate), []

    async def connect():
        begun.append(True)
        await anyio.sleep_forever()

    async def ask():
        client.close()
        await asyncio.sleep(0)  # until the last turn of the loop
        async with anyio.create_task_group() as group:
            group.start_soon(connect)
            await anyio.sleep_forever()

    asked = client._start(ask())
    client._thread.join()

    assert begun == [True]
    assert asked.cancelled()


def test_the_token_goes_to_the_hive_and_its_refusal_comes_back(hive):
    hive.scripts["health"] = [status(401)]
    with (
        HiveClient(lambda: replace(hive.locate(), token="secret")) as client,
        pytest.raises(HiveRefused, match="scripted") as refused,
    ):
        client.health().result(300)

    assert refused.value.status == 401
    assert hive.tokens == {"Bearer secret"}


@pytest.mark.parametrize("reply", [endless, raw(b"{}", content_length=1 << 40)])
def test_an_answer_that_is_too_large_is_not_read(hive, reply):
    hive.scripts["health"] = [reply]

    async def ask():
        transport = HiveTransport(hive.locate, max_answer=1 << 20)
        try:
            return await transport.fetch("GET", "/health", HealthReply)
        finally:
            await transport.close()

    with pytest.raises(ProtocolError, match="1048576 bytes"):
        asyncio.run(ask())


def test_a_client_that_left_an_answer_unread_ends_in_peace(hive, monkeypatch):
    raised = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    for _ in range(5):
        hive.scripts["health"] = [endless]
        with HiveClient(hive.locate) as client, pytest.raises(ProtocolError, match="more than"):
            client.health().result(300)

    assert raised == []


@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        (lambda client: client.runs(), b"{}"),
        (lambda client: client.runs(), b'{"runs": [{"id": 1}]}'),
        (lambda client: client.runs(), b'{"runs": 7}'),
        (lambda client: client.run("r"), b'{"run": []}'),
        (lambda client: client.details("r"), b'{"run": {}}'),
        (lambda client: client.config("r"), b"\xff"),
        (lambda client: client.metrics("r"), b'{"metrics": [["a", "b", "c"]]}'),
        (lambda client: client.metrics("r"), b'{"metrics": [7]}'),
        (lambda client: client.series("r", "a"), b"{}"),
        (lambda client: client.evaluate("r", EvaluationReport(1, [1.0], [1])), b"{}"),
        (lambda client: client.checkpoint("r"), b"{}"),
        (lambda client: client.checkpoints("r"), b'{"checkpoints": 1}'),
    ],
)
def test_an_answer_that_is_none_is_an_error_of_the_hive(hive, client, ask, answer):
    for route in ("runs", "r", "config", "metrics", "series", "evaluations", "checkpoints"):
        hive.scripts[route] = [raw(answer)]

    with pytest.raises(HiveError):
        ask(client).result(300)


def test_a_session_in_block_mode_is_held_until_the_hive_lets_it_go(hive, client):
    session = join(client, block=True)
    hive.hold = True
    append(session, 0, 10)
    eventually(session.must_wait)
    is_free = session.wait(0.05)
    hive.hold = False
    eventually(lambda: session.wait(0.1))

    assert not is_free
    assert hive.rewards() == list(map(float, range(10)))


def test_a_guest_that_waits_asks_for_credit_as_soon_as_there_is_a_new_version(
    hive, client, monkeypatch
):
    monkeypatch.setattr("arkml.hive.run_session._FIRST_WAIT", 1e3)  # until it asks by itself
    begun, is_made = threading.Event(), threading.Event()

    def serve(*request):
        begun.set()
        is_made.wait(300)
        policy(1)(*request)

    hive.scripts["policy"] = [serve, status(204)]
    session = join(client, block=True)
    hive.hold = True
    append(session, 0, 10)
    eventually(session.must_wait)
    waiting = threading.Thread(target=session.wait, args=(300,))
    waiting.start()
    begun.wait(300)
    eventually(lambda: settled(session))
    hive.hold = False
    is_asking = "beat" in hive.times
    is_made.set()
    waiting.join()

    assert not is_asking
    assert not session.must_wait()


def test_a_session_in_drop_mode_is_never_held(hive, client):
    session = join(client)
    hive.hold = True
    append(session, 0, 10)
    eventually(lambda: settled(session))

    assert session._hold
    assert not session.must_wait()


@pytest.mark.parametrize(("before", "after"), [(0, NICE), (15, 15)])
def test_a_thread_gives_way_and_takes_no_priority_back(before, after):
    """Below `nice -n 15` only root may: the thread of a client ended, and requests had no end."""

    def work():
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, max(before, least))
        give_way()
        found.append(os.getpriority(os.PRIO_PROCESS, thread))

    least, found = os.getpriority(os.PRIO_PROCESS, 0), []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    assert found == [max(after, least)]


@pytest.mark.parametrize("wish", [{"requires_device": True}, {"workers": 1, "module": "0" * 64}])
def test_a_run_that_waits_for_its_learner_may_be_what_is_asked_first(hive, monkeypatch, wish):
    monkeypatch.setattr("arkml.hive.transport._FIRST", 0.2)
    slow = threading.Event()

    run = RunInfo("r1", "run", "game", Status.RUNNING, FEATURES, ACTIONS, 0)

    def late(hive, handler, _):
        slow.wait(0.6)
        hive.say(handler, 201, {"run": run.as_json()})

    hive.scripts = {"runs": [late]}
    with HiveClient(hive.locate) as client:
        asked = RunRequest("run", "game", Settings(FEATURES, ACTIONS), **wish)
        assert client.create(asked).result(300) == run
