"""Files that are looked at for changes."""

import os

import pytest

from arkml.guests.file_watch import FileWatch


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "walk.onnx"
    path.write_bytes(b"first")
    return path


def touch(path, content, second):
    """Write a file that has the time of this second."""
    path.write_bytes(content)
    os.utime(path, (second, second))


def looks(watch, count):
    return [watch.has_changed() for _ in range(count)]


def test_a_file_that_stays_has_not_changed(path):
    assert looks(FileWatch(path), 3) == [False] * 3


def test_a_change_is_told_once_when_two_looks_find_it_the_same(path):
    watch = FileWatch(path)
    touch(path, b"other", 100)

    assert looks(watch, 4) == [False, True, False, False]


def test_a_file_that_is_being_written_is_waited_for(path):
    watch, found = FileWatch(path), []
    for length in range(1, 4):
        touch(path, b"x" * length, 100)
        found += looks(watch, 1)

    assert found == [False] * 3
    assert looks(watch, 2) == [True, False]


def test_a_file_that_is_replaced_by_one_of_its_time_and_size_has_changed(path):
    touch(path, b"first", 100)
    watch = FileWatch(path)
    other = path.with_suffix(".other")
    touch(other, b"later", 100)
    other.replace(path)

    assert looks(watch, 2) == [False, True]


def test_a_file_that_is_gone_has_not_changed_until_there_is_another(path):
    watch = FileWatch(path)
    path.unlink()
    gone = looks(watch, 3)
    touch(path, b"again", 100)

    assert gone == [False] * 3
    assert looks(watch, 2) == [False, True]


def test_a_file_may_come_later(tmp_path):
    watch = FileWatch(tmp_path / "later.onnx")
    before = looks(watch, 2)
    touch(tmp_path / "later.onnx", b"here", 100)

    assert before == [False] * 2
    assert looks(watch, 2) == [False, True]
