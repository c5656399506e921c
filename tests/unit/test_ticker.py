"""The ticker ticks while a call is in progress, and ends when it is told to."""

import threading

from arkml.runtime.deadline import Ticker


class Engine:
    def __init__(self):
        self.ticked = threading.Event()

    def increment_epoch(self):
        self.ticked.set()


class SlowToPark(Ticker):
    """Lets `stop` come in exactly while the ticker is about to sleep."""

    def _park(self):
        self.stop()
        super()._park()


def test_it_ticks_while_a_call_is_in_flight_and_parks_afterwards():
    engine = Engine()
    ticker = Ticker(engine)
    ticker.running.add(1)
    ticker.wake()
    ticked = engine.ticked.wait(5)
    ticker.running.discard(1)
    pause = threading.Event()
    for _ in range(100):
        if not ticker.parked:
            pause.wait(0.05)
    parked = ticker.parked
    ticker.close()

    assert ticked
    assert parked


def test_it_ends_even_if_it_is_told_to_while_it_is_about_to_sleep():
    ticker = SlowToPark(Engine())
    ticker.wake()
    thread = ticker._thread
    thread.join(5)

    assert not thread.is_alive()
