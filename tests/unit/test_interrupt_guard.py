"""Blocks to whose end Ctrl-C is put off."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from arkml.runtime import interrupts
from arkml.runtime.interrupts import InterruptGuard


def test_an_interrupt_in_a_block_is_raised_once_at_the_end_of_the_outermost_one():
    guard, passed = InterruptGuard(), []

    def blocks():
        with guard.held_back():
            with guard.held_back():
                passed.append(guard.armed)
                guard.requested = True  # as the handler of SIGINT does
            passed.append(guard.armed)

    with pytest.raises(KeyboardInterrupt):
        blocks()

    assert passed == [2, 1]
    assert (guard.armed, guard.requested) == (0, False)


def test_an_error_in_a_block_ends_it():
    guard = InterruptGuard()

    with pytest.raises(LookupError), guard.held_back():
        raise LookupError

    assert guard.armed == 0


def test_a_block_on_another_thread_puts_nothing_off():
    guard = InterruptGuard()

    def armed():
        with guard.held_back():
            return guard.armed

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(armed).result() == 0


def test_tasks_of_other_threads_may_come_while_one_looks_whether_one_runs(monkeypatch):
    guard, tasks = InterruptGuard(), []

    async def task():
        """Stand for a call in progress."""

    def add(_=None):
        """Add a task, as another thread does between two steps of this one."""
        tasks.append(task())
        guard.tasks[tasks[-1]] = None
        return False

    monkeypatch.setattr(interrupts, "is_running", add)
    add(), add()
    guard.armed = 1
    guard.forget_lost()
    for one in tasks:
        one.close()

    assert (guard.armed, len(tasks)) == (0, 4)
