"""The log as a learner reads it."""

import numpy as np
import pytest

from arkml.hive.protocol.rows import Place, RowColumns, encode, frame, segment_name
from arkml.learning.run_directory import LogReader


def record(first, count=2):
    rows = RowColumns.empty(count, 1, 1)
    rows.step[:] = np.arange(first, first + count)
    return frame(encode(rows, seq=1), session=0, first=first)


def write(directory, number, data, size=0):
    (directory / segment_name(number)).write_bytes(data + bytes(max(0, size - len(data))))


def steps(log, rows=1_000):
    return [step for found in log.read(rows) for step in found.columns.step.tolist()]


def test_only_what_is_committed_is_read_and_only_once(tmp_path):
    one, two = record(0), record(2)
    write(tmp_path, 0, one + two, size=1 << 16)
    log = LogReader(tmp_path)
    before = steps(log)
    log.commit(Place(0, len(one)))
    first = steps(log)
    log.commit(Place(0, len(one + two)))
    second = steps(log)

    assert (before, first, second) == ([], [0, 1], [2, 3])
    assert log.cursor == Place(0, len(one + two))
    assert log.is_read


def test_a_segment_is_read_to_its_last_record_before_the_next_begins(tmp_path):
    write(tmp_path, 3, record(0) + record(2), size=1 << 16)
    write(tmp_path, 5, record(4))
    log = LogReader(tmp_path)
    log.commit(Place(5, len(record(4))))

    assert steps(log) == [0, 1, 2, 3, 4, 5]


def test_no_more_records_are_read_than_were_asked_for(tmp_path):
    write(tmp_path, 0, record(0) + record(2) + record(4))
    log = LogReader(tmp_path)
    log.commit(Place(0, 3 * len(record(0))))

    assert steps(log, 3) == [0, 1, 2, 3]
    assert steps(log, 1) == [4, 5]


def test_deleted_segments_are_stepped_over(tmp_path):
    for number in range(3):
        write(tmp_path, number, record(2 * number))
    log = LogReader(tmp_path)
    log.commit(Place(2, len(record(4))))
    first = steps(log, 1)
    (tmp_path / segment_name(1)).unlink()

    assert first + steps(log) == [0, 1, 4, 5]


def test_a_segment_that_grows_or_is_cut_is_read_on(tmp_path):
    path = tmp_path / segment_name(0)
    path.write_bytes(record(0))
    log = LogReader(tmp_path)
    log.commit(Place(0, len(record(0))))
    found = steps(log)
    with path.open("ab") as file:
        file.write(record(2) + bytes(1 << 16))
    log.commit(Place(0, 2 * len(record(0))))
    found += steps(log)
    with path.open("r+b") as file:
        file.truncate(2 * len(record(0)))
    write(tmp_path, 1, record(4))
    log.commit(Place(1, len(record(4))))

    assert found + steps(log) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("at", range(0, len(record(2)), 3))
def test_a_damaged_record_is_passed_over_and_those_after_it_are_learned_from(tmp_path, caplog, at):
    parts = [record(0), bytearray(record(2)), record(4)]
    parts[1][at] ^= 0x10
    write(tmp_path, 1, b"".join(parts), size=1 << 12)
    write(tmp_path, 2, record(6))
    log = LogReader(tmp_path)
    log.commit(Place(2, len(record(6))))

    if at < 28 or at >= 32:  # between the two nothing is said
        assert steps(log) == [0, 1, 4, 5, 6, 7]
        assert log.lost == 2
        assert f"{len(record(2))} damaged bytes at {len(record(0))}" in caplog.text
    else:
        assert steps(log) == list(range(8))
        assert log.lost == 0
    assert log.is_read


def test_a_damaged_record_at_the_end_of_what_is_committed_does_not_hold_up_what_comes(tmp_path):
    torn = bytearray(record(2))
    torn[-1] ^= 1
    write(tmp_path, 1, record(0) + torn, size=1 << 12)
    log = LogReader(tmp_path)
    log.commit(Place(1, len(record(0) + torn)))
    before, is_read = steps(log), log.is_read
    write(tmp_path, 1, record(0) + torn + record(4), size=1 << 12)
    log.commit(Place(1, len(record(0) + torn + record(4))))

    assert (before, is_read) == ([0, 1], True)
    assert steps(log) == [4, 5]
    assert log.lost == 2


def test_rows_that_were_deleted_before_they_were_read_are_not_lost(tmp_path):
    for number in (1, 2, 4):
        write(tmp_path, number, record(2 * number))
    log = LogReader(tmp_path)
    log.commit(Place(4, len(record(8))))
    first = steps(log, 1)
    (tmp_path / segment_name(2)).unlink()

    assert first + steps(log) == [2, 3, 8, 9]
    assert log.lost == 0


def test_a_new_segment_without_rows_is_read_at_once(tmp_path):
    write(tmp_path, 0, record(0))
    log = LogReader(tmp_path)
    log.commit(Place(1, 0))

    assert steps(log) == [0, 1]
    assert log.is_read
