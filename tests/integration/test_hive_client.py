"""What a client makes of a hive that fails: no row lost, none twice, and nobody waits."""

import signal
import time

import numpy as np
import pytest
from tests.integration.scripted_hive import (
    ScriptedHive,
    cut,
    cut_after,
    forget,
    garbage,
    status,
    take,
)

from arkml.errors import HiveUnreachable
from arkml.hive.client import HiveClient
from arkml.hive.protocol.runs import BATCH_ROWS, Role

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
    ).result(20)  # fmt: skip


def append(session, first, count):
    """Append rows whose rewards count on from `first`."""
    numbers = np.arange(first, first + count)
    session.outbox.append(
        numbers.astype("u8"), numbers.astype("u8"), 1, numbers.astype("f4"),
        np.zeros(count, "u4"), np.ones((count, FEATURES), "f4"), np.ones((count, ACTIONS), "f4"),
    )  # fmt: skip


def until(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


def settled(session):
    return session._delivery.arrived == session.outbox.appended


@pytest.mark.parametrize(
    "replies",
    [
        [status(500), status(503), status(429)],
        [cut, cut],
        [cut_after],
        [cut_after, status(500), cut],
        [garbage],
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
        until(lambda: hive.asked > 0)
    until(lambda: settled(session))

    assert hive.rewards() == list(map(float, range(50)))
    assert session.ledger.accepted == 50
    assert session.ledger.discarded == 0
    assert session.failure is None


def test_a_hive_that_forgot_the_session_is_joined_again(hive, client):
    session = join(client)
    append(session, 0, 5)
    until(lambda: settled(session))
    hive.replies = [forget]
    append(session, 5, 5)
    until(lambda: settled(session))

    assert hive.joins == 2
    assert session.sid == "s2"
    assert session.ledger.renewed == 1
    assert hive.rewards() == list(map(float, range(10)))


def test_a_body_that_will_never_be_taken_is_counted_and_the_next_ones_go_on(hive, client):
    hive.replies = [status(422)]
    session = join(client)
    append(session, 0, 5)
    until(lambda: settled(session))
    append(session, 5, 5)
    until(lambda: settled(session) and session.ledger.accepted == 5)

    assert session.ledger.discarded == 5
    assert hive.rewards() == list(map(float, range(5, 10)))
    assert session.failure is None


def test_a_hive_that_does_not_let_us_in_ends_the_session_with_its_reason(hive, client):
    hive.replies = [status(403)]
    session = join(client)
    append(session, 0, 5)
    until(lambda: session.failure is not None)

    assert session.failure == "scripted"
    assert not session.must_wait()


def test_rows_that_cannot_go_anywhere_are_bounded_and_the_oldest_are_given_up(hive, client):
    hive.gate.clear()
    session = join(client)
    session.outbox._limit = 20_000
    started = time.perf_counter()
    for place in range(200):
        append(session, 1_000 * place, 1_000)
        assert session.outbox.appended - session.outbox._released <= 2 * 20_000 + BATCH_ROWS
    took = time.perf_counter() - started
    hive.gate.set()
    until(lambda: session.outbox.is_empty and settled_all(session, 200_000))

    assert took < 10
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
    until(lambda: session.wait(0.1))

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
                until(lambda: session.wait(0.005), seconds=5)
            except Alarm:
                rung += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    hive.credit = 100
    until(lambda: session.wait(0.1))

    assert rung == 200


def test_closing_does_not_wait_for_an_answer_that_never_comes(hive):
    client = HiveClient(hive.locate)
    session = join(client)
    hive.gate.clear()
    append(session, 0, 5)
    until(lambda: hive.asked > 0)
    started = time.monotonic()
    client.close()

    assert time.monotonic() - started < 30
    assert session.ended.done()


def test_a_hive_that_is_not_there_is_said_to_be_so():
    with HiveClient(lambda: ("127.0.0.1", 9, None)) as client, pytest.raises(HiveUnreachable):
        client.health().result(20)


def test_a_hive_that_comes_back_is_found_again(hive):
    where = [("127.0.0.1", 9, None)]
    with HiveClient(lambda: where[0]) as client:
        with pytest.raises(HiveUnreachable):
            client.health().result(20)
        where[0] = hive.locate()
        session = join(client)
        where[0] = ("127.0.0.1", 9, None)
        hive.replies = [cut, cut, take]
        append(session, 0, 5)
        time.sleep(0.2)
        where[0] = hive.locate()
        until(lambda: settled(session))

    assert hive.rewards() == list(map(float, range(5)))
