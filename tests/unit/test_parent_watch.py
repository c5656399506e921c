"""A process learns that its parent has exited by a pipe, and by its parent's number."""

import os
from threading import Event

import pytest
from tests.waiting import PATIENCE

from arkml.base.parent_watch import watch_parent


@pytest.fixture
def pipe():
    read, write = os.pipe()
    with os.fdopen(write, "wb") as parents_end:
        yield read, parents_end


def test_a_closed_pipe_ends_the_watch(pipe):
    read, parents_end = pipe
    exited = Event()
    watch_parent(read, os.getppid(), exited.set)
    was_set = exited.is_set()
    parents_end.close()

    assert not was_set
    assert exited.wait(PATIENCE)


def test_another_parent_ends_the_watch_though_the_pipe_is_open(pipe):
    read, _ = pipe
    exited = Event()
    watch_parent(read, os.getpid(), exited.set)

    assert exited.wait(PATIENCE)


def test_what_the_parent_writes_is_read_and_does_not_end_the_watch(pipe):
    read, parents_end = pipe
    exited = Event()
    watch_parent(read, os.getppid(), exited.set)
    parents_end.write(b"x" * 100_000)
    parents_end.flush()

    assert not exited.is_set()
