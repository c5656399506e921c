import threading

import pytest

from arkml.errors import (
    HttpRequestFailed,
    InvalidArguments,
    NotFound,
    TooManyFutures,
    Unavailable,
    UsageError,
)
from arkml.sessions.futures import FutureChanges, FutureTable, Readiness, ResultType
from arkml.sessions.handles import HandleTable

FLAG: ResultType[bool] = ResultType("flag")
LETTERS: ResultType[str] = ResultType("letters", counted=True)


def table(limit=8):
    return FutureTable(HandleTable("handles", limit=64), limit=limit, changes=FutureChanges())


def test_a_pending_future_is_not_ready_and_stays_when_taken():
    futures = table()
    handle, _ = futures.open(LETTERS)

    assert futures.poll(handle, LETTERS) == Readiness(ready=False, length=0)
    with pytest.raises(Unavailable):
        futures.take(handle, LETTERS)
    assert len(futures) == 1


def test_a_ready_future_tells_its_length_and_is_emptied_by_take():
    futures = table()
    handle, future = futures.open(LETTERS)
    future.resolve("abc")

    assert futures.poll(handle, LETTERS) == Readiness(ready=True, length=3)
    assert futures.take(handle, LETTERS) == "abc"
    assert len(futures) == 0


def test_a_result_that_is_no_vector_has_no_length():
    futures = table()
    handle, future = futures.open(FLAG)
    future.resolve(value=False)

    assert futures.poll(handle, FLAG) == Readiness(ready=True, length=0)
    assert futures.take(handle, FLAG) is False


def test_a_failed_future_is_ready_without_items_and_take_brings_its_error_once():
    futures = table()
    handle, future = futures.open(LETTERS)
    future.fail(HttpRequestFailed("503"))

    assert futures.poll(handle, LETTERS) == Readiness(ready=True, length=0)
    with pytest.raises(HttpRequestFailed):
        futures.take(handle, LETTERS)
    with pytest.raises(NotFound):
        futures.take(handle, LETTERS)


@pytest.mark.parametrize("ask", ["poll", "take"])
@pytest.mark.parametrize("ready", [False, True])
def test_a_future_of_another_type_is_refused_and_kept(ask, ready):
    futures = table()
    handle, future = futures.open(LETTERS)
    if ready:
        future.resolve("abc")

    with pytest.raises(InvalidArguments, match="holds a letters, not a flag"):
        getattr(futures, ask)(handle, FLAG)
    assert futures.poll(handle, LETTERS).ready is ready


@pytest.mark.parametrize("ask", ["poll", "take"])
def test_an_unknown_taken_or_dropped_future_is_not_found(ask):
    futures = table()
    taken, future = futures.open(FLAG)
    future.resolve(value=True)
    futures.take(taken, FLAG)
    dropped, _ = futures.open(FLAG)
    futures.drop(dropped)

    for handle in (0, 77, taken, dropped):
        with pytest.raises(NotFound):
            getattr(futures, ask)(handle, FLAG)


@pytest.mark.parametrize("ready", [False, True])
def test_a_live_future_can_always_be_dropped_once(ready):
    futures = table()
    handle, future = futures.open(FLAG)
    if ready:
        future.resolve(value=True)
    futures.drop(handle)

    with pytest.raises(NotFound):
        futures.drop(handle)


def test_a_handle_of_something_else_is_no_future():
    handles = HandleTable("handles", limit=64)
    futures = FutureTable(handles, limit=8, changes=FutureChanges())
    other = handles.insert("a session")

    with pytest.raises(NotFound):
        futures.drop(other)
    assert handles.get(other, str) == "a session"


def test_more_live_futures_than_the_limit_are_refused():
    futures = table(limit=1)
    handle, _ = futures.open(FLAG)

    with pytest.raises(TooManyFutures):
        futures.open(FLAG)
    futures.drop(handle)
    assert futures.open(FLAG)[0] != handle


def test_a_dropped_future_may_still_be_resolved_and_nobody_sees_it():
    futures = table()
    handle, future = futures.open(FLAG)
    futures.drop(handle)
    future.resolve(value=True)

    with pytest.raises(NotFound):
        futures.take(handle, FLAG)


def test_a_future_gets_its_result_once():
    futures = table()
    _, future = futures.open(FLAG)
    future.fail(Unavailable("gone"))

    with pytest.raises(UsageError):
        future.resolve(value=True)


def test_raising_a_kept_error_again_does_not_make_it_grow():
    futures = table()
    _, future = futures.open(FLAG)
    future.fail(Unavailable("gone"))
    depths = []
    for _ in range(3):
        with pytest.raises(Unavailable) as caught:
            future.result()
        depths.append(len(caught.traceback))

    assert len(set(depths)) == 1


def test_clear_forgets_futures_and_nothing_else():
    handles = HandleTable("handles", limit=64)
    futures = FutureTable(handles, limit=8, changes=FutureChanges())
    other = handles.insert("a session")
    futures.open(FLAG)
    futures.open(LETTERS)
    futures.clear()

    assert len(futures) == 0
    assert list(handles) == [(other, "a session")]


def test_whoever_waits_wakes_when_another_thread_resolves():
    futures = table()
    handle, future = futures.open(FLAG)
    seen = futures.changes.count
    worker = threading.Thread(target=future.resolve, args=(True,))
    worker.start()
    woken = futures.changes.wait(seen, timeout=300)
    worker.join()

    assert woken
    assert futures.take(handle, FLAG) is True


def test_a_change_that_came_before_the_wait_is_not_missed():
    futures = table()
    seen = futures.changes.count
    _, future = futures.open(FLAG)
    future.resolve(value=True)

    assert futures.changes.wait(seen, timeout=300)


def test_waiting_ends_when_nothing_changes():
    changes = FutureChanges()

    assert not changes.wait(changes.count, timeout=0.001)


def test_of_many_threads_one_gives_the_result():
    futures = table()
    handle, future = futures.open(LETTERS)
    start = threading.Barrier(8)
    refused = []

    def give(letter):
        start.wait()
        try:
            future.resolve(letter)
        except UsageError:
            refused.append(letter)

    threads = [threading.Thread(target=give, args=(letter,)) for letter in "abcdefgh"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(refused) == 7
    assert futures.take(handle, LETTERS) not in refused
