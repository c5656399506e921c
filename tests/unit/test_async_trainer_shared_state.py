"""Memory that a runner and the processes of its actors share."""

import os
import threading

import pytest

from arkml.async_trainer.runners.shared_state import ACTORS, SharedState
from arkml.errors import UsageError


@pytest.fixture
def state():
    with SharedState.create() as made:
        yield made


@pytest.fixture
def other(state):
    """The memory as another process has it."""
    with SharedState(tuple(map(os.dup, state.files))) as made:
        yield made


def test_what_one_side_writes_the_other_one_reads(state, other):
    state.queued = 3
    state.stop()
    theirs = other.counters(2)
    theirs.count_wait()
    theirs.add_waited(500)
    theirs.count_wait()

    assert (other.queued, other.is_stopped) == (3, True)
    assert state.counters(2).waits == (2, 500)
    assert state.counters(1).waits == (0, 0)


def test_an_actor_has_room_for_what_is_admitted(state, other):
    mine, theirs = state.counters(0), other.counters(0)
    mine.admit(2)
    held = [theirs.has_room(made) for made in (0, 1, 2)]
    mine.admit(None)

    assert held == [True, True, False]
    assert theirs.has_room(10**9)
    assert mine.made == 10**9


def test_another_incarnation_keeps_what_is_admitted(state):
    counters = state.counters(0)
    counters.admit(5)
    counters.count_wait()
    counters.add_waited(1)
    counters.note(5)
    counters.read = 4
    counters.reset()

    assert (counters.waits, counters.made, counters.read) == ((0, 0), 0, 0)
    assert (counters.has_room(4), counters.has_room(5)) == (True, False)


def test_the_newest_model_is_read(state, other):
    before = other.model
    state.write_model(0, b"first")
    state.write_model(10, b"")
    state.write_model(20, b"third, longer")

    assert (before, other.model) == (0, 3)
    assert other.read_model() == (3, 20, b"third, longer")


def test_a_model_that_is_read_while_others_are_written_is_one_of_them(state, other):
    count, size = 300, 200_000
    state.write_model(0, bytes(size))

    def write():
        for n_opts in range(1, count):
            state.write_model(n_opts, bytes([n_opts % 256]) * (size - n_opts))

    writer = threading.Thread(target=write)
    writer.start()
    seen = []
    while not seen or seen[-1][1] < count - 1:
        seen.append(other.read_model())
    writer.join()

    for number, n_opts, data in seen:
        assert number == n_opts + 1
        assert data == bytes([n_opts % 256]) * (size - n_opts)


def test_there_are_counters_for_4096_actors(state):
    state.counters(ACTORS - 1)

    with pytest.raises(UsageError, match="at most 4096 actors"):
        state.counters(ACTORS)


def test_closing_is_safe_again(state):
    state.counters(0)
    state.close()
    state.close()
