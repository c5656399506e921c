"""Calls of threads in an event loop: in order, in small turns, awaited ones first."""

import asyncio
import threading
import time

from arkml.guest_trials.guest_workers import Handover


async def test_calls_of_a_thread_are_made_in_their_order():
    made, all_made = [], asyncio.Event()
    handover = Handover(asyncio.get_running_loop())

    def add():
        for number in range(100):
            handover.add(lambda number=number: made.append(number), is_awaited=False)
        handover.add(all_made.set, is_awaited=False)

    thread = threading.Thread(target=add)
    thread.start()
    await all_made.wait()
    thread.join()

    assert made == list(range(100))


async def test_an_awaited_call_and_the_loop_do_not_wait_for_all_others():
    made, all_made = [], asyncio.Event()
    handover = Handover(asyncio.get_running_loop())
    for _ in range(50):
        handover.add(lambda: (time.sleep(0.002), made.append("other")), is_awaited=False)
    handover.add(all_made.set, is_awaited=False)
    handover.add(lambda: made.append("awaited"), is_awaited=True)
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_soon(made.append, "loop")
    await all_made.wait()

    assert made.index("awaited") <= 1
    assert made.index("loop") <= 3


async def test_the_thread_waits_until_its_calls_are_made():
    made = []
    handover = Handover(asyncio.get_running_loop())

    def add():
        for number in range(20):
            handover.add(lambda number=number: made.append(number), is_awaited=False)
        handover.wait()
        return list(made)

    assert await asyncio.to_thread(add) == list(range(20))


async def test_the_thread_waits_no_longer_once_it_released(monkeypatch):
    monkeypatch.setattr("arkml.guest_trials.guest_workers._PATIENCE", 60)
    handover, went_on = Handover(asyncio.get_running_loop()), threading.Event()

    def add():
        handover.add(lambda: None, is_awaited=False)
        handover.wait()
        went_on.set()

    thread = threading.Thread(target=add)
    thread.start()
    while not handover._others:
        time.sleep(0.001)  # the loop makes no call meanwhile
    handover.release()

    assert went_on.wait(300)


def test_a_loop_that_does_not_run_does_not_keep_the_thread():
    loop = asyncio.new_event_loop()
    handover = Handover(loop)
    handover.add(lambda: None, is_awaited=False)
    handover.wait()  # comes back
    loop.close()


async def test_a_call_that_fails_leaves_the_others(caplog):
    all_made = asyncio.Event()
    handover = Handover(asyncio.get_running_loop())
    handover.add(lambda: 1 / 0, is_awaited=False)
    handover.add(all_made.set, is_awaited=False)
    await all_made.wait()

    assert "a bug of the host" in caplog.text


def test_calls_after_the_end_of_the_loop_are_dropped():
    loop = asyncio.new_event_loop()
    handover = Handover(loop)
    loop.close()
    made = []
    for is_awaited in (True, False):
        handover.add(lambda: made.append("late"), is_awaited=is_awaited)

    assert not made
