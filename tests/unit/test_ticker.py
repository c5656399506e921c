"""The ticker ticks while a call is in progress, and ends with its last user."""

import threading

from tests.waiting import eventually

from arkml.runtime.deadline import Ticker


class Engine:
    def __init__(self):
        self.ticked = threading.Event()

    def increment_epoch(self):
        self.ticked.set()


class SlowToPark(Ticker):
    """Lets its last user leave exactly while the ticker is about to sleep."""

    def _park(self):
        self.leave(7)
        super()._park()


def test_it_ticks_while_a_call_is_in_flight_and_parks_afterwards():
    engine = Engine()
    ticker = Ticker(engine)
    ticker.users.add(7)
    ticker.running.add(1)
    ticker.wake()
    ticked = engine.ticked.wait(300)
    ticker.running.discard(1)
    eventually(lambda: ticker.parked)
    ticker.close(7)

    assert ticked


def test_it_ends_even_if_its_last_user_leaves_while_it_is_about_to_sleep():
    ticker = SlowToPark(Engine())
    ticker.users.add(7)
    ticker.wake()

    assert eventually(lambda: not ticker._ticks() and ticker.parked)


def test_it_goes_on_for_the_others_when_one_user_leaves():
    ticker = Ticker(Engine())
    ticker.users.update((7, 8))
    ticker.wake()
    eventually(ticker._ticks)
    ticker.close(7)
    lives = ticker._ticks()
    ticker.close(8)

    assert lives
    assert not ticker._ticks()


def test_it_starts_again_with_the_next_user():
    engine = Engine()
    ticker = Ticker(engine)
    ticker.users.add(7)
    ticker.wake()
    ticker.close(7)
    engine.ticked.clear()
    ticker.users.add(8)
    ticker.running.add(1)
    if ticker.parked:
        ticker.wake()
    ticked = engine.ticked.wait(300)
    ticker.close(8)

    assert ticked


def test_users_that_come_and_go_leave_nothing():
    ticker = Ticker(Engine())
    for user in range(5):
        ticker.users.add(user)
        ticker.wake()
        eventually(ticker._ticks)
        ticker.close(user)
    with ticker._lock:
        left = ticker._waking.qsize()

    assert left <= 1  # of the last one, which may leave after the end of the thread


def test_it_does_not_start_without_a_user():
    ticker = Ticker(Engine())
    ticker.wake()

    assert ticker.parked
