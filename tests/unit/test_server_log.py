"""The log of a run: what was appended is there, whatever ends the process or the disk."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest
import zstandard

from arkml.base.files import lock_file
from arkml.errors import HiveError
from arkml.hive.protocol.parts import Part
from arkml.hive.protocol.rows import (
    Header,
    Place,
    RowColumns,
    encode,
    frame,
    parse_header,
    read_record,
    read_records,
    segment_name,
)
from arkml.hive.protocol.settings import Settings
from arkml.server.hive_files import inside
from arkml.server.log import ON_POLICY_BYTES, kept_rows, open_log
from arkml.server.session_figures import SessionCounts

SEGMENT = 1 << 16


def opened(directory, keep=1_000_000, segment=SEGMENT):
    return open_log(directory, keep=keep, segment=segment)


def body(seq, rows=10, dropped=0):
    columns = RowColumns.empty(rows, 3, 2)
    columns.agent[:] = np.arange(rows)
    columns.step[:] = seq
    columns.action[:] = 1.0
    return encode(columns, seq=seq, dropped=dropped)


def append(log, seq, session=0, rows=10, refused=0, dropped=0):
    data = body(seq, rows, dropped)
    log.append(data, session, parse_header(data), refused)


def records_in(path):
    data = memoryview(path.read_bytes())
    return list(read_records(data, 0, len(data)))


def records(directory):
    return [record for path in sorted(directory.glob("*.rows")) for record in records_in(path)]


def test_what_was_appended_can_be_read_in_that_order(tmp_path):
    log = opened(tmp_path)
    for seq in range(1, 6):
        append(log, seq)

    assert [record.header.seq for record in records(tmp_path)] == [1, 2, 3, 4, 5]
    assert [record.first for record in records(tmp_path)] == [0, 10, 20, 30, 40]
    assert log.rows == 50
    log.close()


def test_a_log_that_was_never_closed_knows_everything_it_took(tmp_path):
    log = opened(tmp_path)
    append(log, 1, session=0, rows=7)
    append(log, 1, session=3, rows=5, dropped=4)
    append(log, 2, session=0, rows=0)
    again = opened(tmp_path)

    assert again.rows == 12
    assert again.counts == {0: SessionCounts(2, 7, 0, 0), 3: SessionCounts(1, 5, 0, 4)}
    assert again.end == log.end
    log.close()


IMAGES = 48


def images(seq, noisy=False):
    """A body of rows whose images are of one color, or of no two alike."""
    columns = RowColumns.empty(10, 3 + IMAGES, 2, images=IMAGES)
    columns.step[:], columns.images[:] = seq, seq
    if noisy:
        random = np.random.default_rng(seq)
        for column in columns.arrays()[:8]:
            bytes_ = random.integers(0, 256, column.nbytes, np.uint8)
            column[...] = bytes_.view(column.dtype).reshape(column.shape)
    return encode(columns, seq=seq)


def compressed(directory, *bodies, compress=True):
    """The segment of a log that has these bodies, and where each of them begins."""
    log = open_log(directory, keep=1_000_000, segment=SEGMENT, compress=compress)
    begins = []
    for data in bodies:
        begins.append(log.end.offset)
        log.append(data, 0, parse_header(data), 0)
    log.close()
    return directory / segment_name(log.end.segment), [*begins, log.end.offset]


def test_rows_are_compressed_where_that_makes_them_smaller(tmp_path):
    bodies = [images(1), images(2), images(3, noisy=True)]
    _, plain = compressed(tmp_path / "plain", *bodies, compress=False)
    _, small = compressed(tmp_path / "small", *bodies)

    for before, after in zip(records(tmp_path / "plain"), records(tmp_path / "small"), strict=True):
        assert before.header == after.header
        for one, other in zip(before.columns.arrays(), after.columns.arrays(), strict=True):
            assert one.tobytes() == other.tobytes()
    assert 3 * small[2] < plain[2]
    assert small[3] - small[2] == plain[3] - plain[2]


def test_a_log_goes_on_whether_its_rows_were_compressed_or_not(tmp_path):
    compressed(tmp_path, images(1), compress=False)
    compressed(tmp_path, images(2))
    compressed(tmp_path, images(3), compress=False)

    assert [record.header.seq for record in records(tmp_path)] == [1, 2, 3]
    assert opened(tmp_path).counts == {0: SessionCounts(3, 30)}


@pytest.mark.parametrize("places", [[0], [20], [36], [98], [101], [120], [0, 40], [0, 98]])
def test_a_damaged_record_that_is_compressed_is_skipped(tmp_path, places):
    """Of the prefix, the header behind it, the stored size, and the columns."""
    path, begins = compressed(tmp_path, *map(images, (1, 2, 3)))
    data = bytearray(path.read_bytes())
    for place in places:
        data[begins[1] + place] ^= 0x55
    path.write_bytes(data)

    assert [record.header.seq for record in records(tmp_path)] == [1, 3]


def test_a_compressed_record_that_is_damaged_anywhere_takes_no_other_with_it(tmp_path):
    path, begins = compressed(tmp_path, *map(images, (1, 2, 3)))
    whole, changed = path.read_bytes(), 0
    for place in range(begins[1], begins[2]):
        data = bytearray(whole)
        data[place] ^= 0x55
        view = memoryview(bytes(data))
        found = [record.header.seq for record in read_records(view, 0, len(view))]
        assert found in ([1, 3], [1, 2, 3])
        changed += len(found) == 2

    assert changed == begins[2] - begins[1] - 4  # all but the padding of the prefix


@pytest.mark.parametrize("size", [1, -1, 1 << 40])
def test_columns_that_would_be_of_another_size_are_not_decompressed(size):
    body = images(1)
    columns = memoryview(body)[64:]
    claimed = bytes(len(columns) + size) if size < 1 << 40 else bytes(1 << 20)
    other = zstandard.ZstdCompressor().compress(claimed)
    if size == 1 << 40:  # a frame that says what it has not
        other = b"\x28\xb5\x2f\xfd\xe0" + size.to_bytes(8, "little") + other[9:]
    head = b"AKZ1" + body[4:64] + len(other).to_bytes(4, "little")
    record = recorded(head + other)
    taken = recorded(head[:64] + _stored(columns))

    assert read_record(memoryview(taken), 0) is not None
    assert read_record(memoryview(record), 0) is None


def recorded(stored):
    """Bytes as a record, as if they were a body."""
    return frame(stored, session=0, first=0)


def _stored(columns):
    data = zstandard.ZstdCompressor().compress(columns)
    return len(data).to_bytes(4, "little") + data


def test_segments_follow_each_other_and_no_record_is_cut_in_two(tmp_path):
    log = opened(tmp_path, segment=2_000)
    for seq in range(1, 11):
        append(log, seq)
    log.close()

    assert len(list(tmp_path.glob("*.rows"))) > 2
    assert [record.header.seq for record in records(tmp_path)] == list(range(1, 11))


def test_a_record_larger_than_a_segment_gets_one_of_its_own(tmp_path):
    log = opened(tmp_path, segment=1_000)
    append(log, 1, rows=1_000)
    log.close()

    assert [len(record.columns) for record in records(tmp_path)] == [1_000]


@pytest.mark.parametrize("kept", [1, 20, 24, 100, 300])
def test_a_torn_record_is_cut_and_the_ones_before_it_stay(tmp_path, kept):
    log = opened(tmp_path)
    append(log, 1)
    whole = log.end.offset
    append(log, 2)
    torn = tmp_path / segment_name(log.end.segment)
    data = bytearray(torn.read_bytes())
    data[whole + kept : log.end.offset] = bytes(log.end.offset - whole - kept)
    torn.write_bytes(data)
    again = opened(tmp_path)
    append(again, 2, rows=3)

    assert again.counts == {0: SessionCounts(2, 13, 0, 0)}
    assert [record.header.rows for record in records(tmp_path)] == [10, 3]
    log.close()
    again.close()


PLACES = {
    "magic": 0, "size": 4, "first row": 8, "session": 16, "checksum of the header": 20,
    "checksum": 24, "rows": 48, "payload": 64, "feature": 300,
}  # fmt: skip
"""Bytes of a record."""


def flip(path, at, bit=1):
    data = bytearray(path.read_bytes())
    data[at] ^= bit
    path.write_bytes(data)


@pytest.mark.parametrize("place", PLACES)
def test_a_flipped_bit_costs_one_record_and_none_of_those_after_it(tmp_path, caplog, place):
    log = opened(tmp_path, segment=2_000)
    for seq in range(1, 11):
        append(log, seq)
    log.close()
    damaged = records(tmp_path)[1]
    flip(tmp_path / segment_name(1), damaged.start + PLACES[place], 0x40)
    again = opened(tmp_path, segment=2_000)
    told = caplog.text
    append(again, again.counts[0].acked + 1)

    assert [record.header.seq for record in records(tmp_path)] == [1, *range(3, 12)]
    assert [record.first for record in records(tmp_path)] == [0, *range(20, 110, 10)]
    assert (again.rows, again.lost, again.counts[0].acked) == (110, 10, 11)
    assert f"{damaged.end - damaged.start} bytes after byte {damaged.start}" in told
    assert "10 acknowledged rows are lost" in told
    again.close()


def test_a_damaged_record_at_the_end_of_a_segment_costs_none_of_the_later_segments(tmp_path):
    log = opened(tmp_path, segment=2_000)
    for seq in range(1, 11):
        append(log, seq)
    log.close()
    first = tmp_path / segment_name(1)
    flip(first, records_in(first)[-1].end - 1)
    again = opened(tmp_path, segment=2_000)
    append(again, 11)

    assert [record.header.seq for record in records(tmp_path)] == [1, 2, *range(4, 12)]
    assert (again.rows, again.lost) == (110, 10)
    assert again.end.segment > log.end.segment
    again.close()


def test_a_page_of_zeros_costs_the_records_that_it_covers(tmp_path):
    log = opened(tmp_path)
    for seq in range(1, 41):
        append(log, seq)
    log.close()
    path = tmp_path / segment_name(1)
    data = bytearray(path.read_bytes())
    data[4_096:8_192] = bytes(4_096)
    path.write_bytes(data)
    left = [seq for seq in range(1, 41) if not 4_096 < seq * 512 <= 8_192 + 511]
    again = opened(tmp_path)

    assert [record.header.seq for record in records(tmp_path)] == left
    assert (again.rows, again.lost) == (400, 400 - 10 * len(left))
    again.close()


def test_what_a_guest_writes_into_its_rows_is_no_record_though_the_one_around_it_is_damaged(
    tmp_path,
):
    columns = RowColumns.empty(400, 3, 2)
    columns.step[:] = np.arange(400)
    forged = frame(body(99), session=7, first=20)
    features = columns.features.reshape(-1).view(np.uint8)
    features[: len(forged)] = np.frombuffer(forged, np.uint8)
    hiding = encode(columns, seq=2)
    for at in (4, 48):  # the size in the prefix, and in the header
        directory = tmp_path / str(at)
        log = opened(directory)
        append(log, 1)
        start = log.end.offset
        log.append(hiding, 0, parse_header(hiding), 0)
        append(log, 3)
        log.close()
        flip(directory / segment_name(1), start + at)
        again = opened(directory)

        assert [record.header.seq for record in records(directory)] == [1, 3]
        assert set(again.counts) == {0}
        assert again.lost == 400
        again.close()


@pytest.mark.parametrize("knows", ["the run", "the tallies"])
def test_rows_that_the_last_record_loses_are_named_and_their_numbers_not_given_again(
    tmp_path, caplog, knows
):
    log = opened(tmp_path, segment=1 << 20)
    for seq in range(1, 4):
        append(log, seq, rows=1_000)
    log.close()
    path = tmp_path / segment_name(1)
    flip(path, log.end.offset - 9)
    before = path.read_bytes()
    least = 0
    if knows == "the run":
        (tmp_path / "tallies.json").unlink()
        least = 3_000
    again = open_log(tmp_path, keep=1_000_000, segment=1 << 20, least=least)
    append(again, 4)
    again.close()
    last = opened(tmp_path)

    assert (again.rows, again.lost, last.rows, last.lost) == (3_010, 1_000, 3_010, 1_000)
    assert [record.first for record in records(tmp_path)] == [0, 1_000, 3_000]
    assert "1000 acknowledged rows are lost" in caplog.text
    assert path.read_bytes() == before


def test_a_hole_between_segments_is_noticed(tmp_path):
    log = opened(tmp_path, segment=2_000)
    for seq in range(1, 11):
        append(log, seq)
    log.close()
    lost = 10 * len(records_in(tmp_path / segment_name(2)))
    (tmp_path / segment_name(2)).unlink()
    again = opened(tmp_path, segment=2_000)

    assert (again.rows, again.lost) == (100, lost)
    assert 10 * len(records(tmp_path)) == 100 - lost
    again.close()


def test_segments_beyond_the_memory_go_and_nobody_is_forgotten(tmp_path):
    log = opened(tmp_path, keep=20, segment=2_000)
    append(log, 1, session=7, refused=2)
    for seq in range(1, 21):
        append(log, seq)
    expired = log.expired(reached=log.end.segment)
    log.remove(expired)
    again = opened(tmp_path, keep=20, segment=2_000)

    assert expired
    assert not (tmp_path / segment_name(1)).exists()
    assert log.rows - records(tmp_path)[0].first >= 20
    assert again.rows == 210
    assert again.counts == {7: SessionCounts(1, 10, 2, 0), 0: SessionCounts(20, 200, 0, 0)}
    log.close()
    again.close()


def test_segments_that_the_learner_has_not_read_are_kept_for_a_while(tmp_path):
    log = opened(tmp_path, keep=100, segment=2_000)
    for seq in range(1, 21):
        append(log, seq)
    unread = log.expired(reached=1)
    for seq in range(21, 61):
        append(log, seq)

    assert unread == []
    assert log.expired(reached=1) != []
    log.close()


def full(monkeypatch, name, after=0):
    """Make a call of the system fail as on a full disk, after so many bytes."""
    real = getattr(os, name)

    def failing(descriptor, data, *rest):
        if after and name == "pwrite":
            monkeypatch.setattr(os, name, no_space)
            return real(descriptor, data[:after], *rest)
        return no_space()

    def no_space(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, name, failing)


@pytest.mark.parametrize(("call", "after"), [("pwrite", 0), ("pwrite", 200)])
def test_a_body_that_a_full_disk_refuses_leaves_no_trace(tmp_path, monkeypatch, call, after):
    log = opened(tmp_path)
    append(log, 1)
    before = log.end, log.rows
    with monkeypatch.context() as patch:
        full(patch, call, after)
        with pytest.raises(OSError, match="No space"):
            append(log, 2)
        after_failure = log.end, log.rows, log.counts[0].acked
    append(log, 2, rows=1)

    assert after_failure == (*before, 1)
    assert [record.header.rows for record in records(tmp_path)] == [10, 1]
    log.close()


def test_a_segment_that_cannot_be_allocated_is_not_begun(tmp_path, monkeypatch):
    log = opened(tmp_path)
    with monkeypatch.context() as patch:
        full(patch, "posix_fallocate")
        with pytest.raises(OSError, match="No space"):
            append(log, 1)
    append(log, 1)

    assert log.end.segment == 1
    assert [record.header.seq for record in records(tmp_path)] == [1]
    log.close()


def test_a_write_that_takes_only_a_part_is_gone_on_with(tmp_path, monkeypatch):
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, data[:100], at))
    log = opened(tmp_path)
    append(log, 1)

    assert [len(record.columns) for record in records(tmp_path)] == [10]
    log.close()


def test_syncing_closes_the_segments_that_are_full(tmp_path):
    log = opened(tmp_path, segment=2_000)
    for seq in range(1, 11):
        append(log, seq)
    log.sync()
    open_files = [path.resolve() for path in Path("/proc/self/fd").iterdir()]
    log.close()

    assert sum(path.parent == tmp_path for path in open_files) == 1


@pytest.mark.parametrize("fails", [1, 2, 3])
def test_what_could_not_be_synced_is_synced_the_next_time(tmp_path, monkeypatch, fails):
    log = opened(tmp_path, segment=2_000)
    for seq in range(1, 8):
        append(log, seq, refused=1)
    real, synced = os.fdatasync, []

    def failing(descriptor):
        synced.append(Path(f"/proc/self/fd/{descriptor}").resolve().name)
        if len(synced) == fails:
            raise OSError(errno.EIO, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", failing)
    with pytest.raises(OSError, match="Input/output"):
        log.sync()
    failed, synced[:] = synced[-1], ["none fails any more"] * fails
    log.sync()
    again = synced[fails:]
    synced[:] = ["none fails any more"] * fails
    log.sync()

    assert failed == segment_name(fails)
    assert failed in again
    assert segment_name(log.end.segment) in again
    assert synced[fails:] == []
    assert opened(tmp_path).counts[0].refused == 7
    log.close()


@pytest.mark.parametrize(
    "damage",
    ["", "[", "[]", "{}", '{"sessions": 7}', '{"sessions": {"x": [1, 2, 3, 4]}}',
     '{"sessions": {"0": [1]}}', '{"sessions": {"0": ["1", 2, 3, 4]}}',
     '{"sessions": {"0": [-1, 2, 3, 4]}}', '{"sessions": {"0": [1e999, 2, 3, 4]}}', "[" * 100_000],
)  # fmt: skip
def test_damaged_tallies_are_counted_anew_from_the_segments(tmp_path, caplog, damage):
    log = opened(tmp_path)
    append(log, 1, dropped=2)
    append(log, 2)
    log.close()
    (tmp_path / "tallies.json").write_text(damage)
    again = opened(tmp_path)
    append(again, 3)

    assert again.counts == {0: SessionCounts(3, 30, 0, 2)}
    assert again.rows == 30
    assert "counted anew" in caplog.text
    again.close()


def test_pipes_in_the_place_of_files_are_not_waited_for(tmp_path, caplog):
    log = opened(tmp_path)
    append(log, 1)
    log.close()
    os.mkfifo(tmp_path / "tallies.json.new")
    (tmp_path / "tallies.json.new").replace(tmp_path / "tallies.json")
    opened(tmp_path).close()
    assert "counted anew" in caplog.text

    os.mkfifo(tmp_path / segment_name(2))
    with pytest.raises(OSError, match="not a plain file"):
        opened(tmp_path)


def test_a_log_whose_directory_is_gone_begins_anew_after_the_rows_that_there_were(tmp_path):
    log = open_log(tmp_path / "rows", keep=1_000, segment=SEGMENT, least=500)
    append(log, 1)
    log.close()

    assert log.rows == 510
    assert [record.first for record in records(tmp_path / "rows")] == [500]


def test_refused_rows_are_counted_also_if_nobody_closed_the_log(tmp_path):
    log = opened(tmp_path)
    append(log, 1, refused=3)
    log.sync()
    append(log, 2)
    again = opened(tmp_path)

    assert again.counts == {0: SessionCounts(2, 20, 3, 0)}
    log.close()


def test_an_empty_log_ends_where_it_begins(tmp_path):
    log = opened(tmp_path)
    log.close()

    assert log.end == Place(0, 0)
    assert opened(tmp_path).counts == {}


def test_counts_add_up_what_a_header_says():
    counts = SessionCounts(3, 1, 1, 1).plus(
        Header(4, 10, features=3, actions=2, dropped=5), refused=2
    )

    assert counts == SessionCounts(4, 11, 3, 6)


def test_a_directory_is_locked_by_one_only(tmp_path):
    held = lock_file(tmp_path / "lock")
    with pytest.raises(BlockingIOError):
        lock_file(tmp_path / "lock")
    os.close(held)

    os.close(lock_file(tmp_path / "lock"))


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "", ".", "a/../../x", "a\0b", None, 3])
def test_a_file_outside_its_directory_is_refused(tmp_path, name):
    with pytest.raises(HiveError):
        inside(tmp_path, name)


def test_a_run_by_rollouts_keeps_a_gibibyte_of_large_rows_and_a_replay_buffer_all_of_its_rows():
    view = Part("view", (84, 84, 3), "image")
    width = view.width
    by_rollouts, by_replay = (
        Settings(width, 1, parts=(view,), algorithm=n) for n in ("ppo", "sac")
    )

    assert 0.9 < kept_rows(by_rollouts) * width / ON_POLICY_BYTES <= 1.0
    assert kept_rows(by_replay) == 1_000_000
    assert kept_rows(Settings(8, 1, algorithm="ppo")) == 1_000_000, "small rows all stay"
    assert kept_rows(Settings(65_536, 1, algorithm="ppo", rollout_rows=1_024)) == 16 * 1_024
