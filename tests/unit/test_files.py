"""Files are replaced as a whole, or stay what they were."""

import os
import stat
import tracemalloc
from functools import partial
from pathlib import Path

import pytest

from arkml.base import files
from arkml.base.files import lock_file, open_file, open_inside, read_file, read_plain, write_atomic


def names_in(directory):
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.parametrize("durable", [True, False])
def test_a_file_is_replaced_as_a_whole(tmp_path, durable):
    path = tmp_path / "file"
    write_atomic(path, b"one", durable=durable)
    write_atomic(path, b"two", durable=durable)

    assert path.read_bytes() == b"two"
    assert names_in(tmp_path) == ["file"]


def test_a_reader_that_has_the_file_open_keeps_the_old_content(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"one")
    with path.open("rb") as file:
        write_atomic(path, b"two", durable=True)
        seen = file.read()

    assert seen == b"one"


def test_a_new_file_has_the_permissions_that_the_process_gives_to_any(tmp_path):
    write_atomic(tmp_path / "file", b"", durable=False)
    (tmp_path / "other").touch()

    assert (tmp_path / "file").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path):
    path = tmp_path / "file"
    path.touch()
    path.chmod(0o600)
    write_atomic(path, b"two", durable=False)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_cannot_be_replaced_stays_and_leaves_no_other(tmp_path):
    target = tmp_path / "folder"
    target.mkdir()
    with pytest.raises(OSError, match="folder"):
        write_atomic(target, b"two", durable=True)

    assert names_in(tmp_path) == ["folder"]


def test_a_write_that_fails_half_way_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"one")
    with pytest.raises(TypeError):
        write_atomic(path, "text", durable=True)

    assert path.read_bytes() == b"one"
    assert names_in(tmp_path) == ["file"]


def test_what_a_killed_process_left_is_no_hindrance(tmp_path):
    (tmp_path / ".file.new").write_bytes(b"half")
    write_atomic(tmp_path / "file", b"whole", durable=True)

    assert (tmp_path / "file").read_bytes() == b"whole"
    assert names_in(tmp_path) == ["file"]


def test_a_link_in_the_place_of_the_temporary_file_is_not_followed(tmp_path):
    (tmp_path / "other").write_bytes(b"theirs")
    (tmp_path / "part").symlink_to(tmp_path / "other")
    write_atomic(tmp_path / "file", b"ours", durable=False, temporary=tmp_path / "part")

    assert (tmp_path / "other").read_bytes() == b"theirs"
    assert (tmp_path / "file").read_bytes() == b"ours"


def test_a_link_is_replaced_and_its_target_is_not(tmp_path):
    (tmp_path / "target").write_bytes(b"one")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write_atomic(tmp_path / "link", b"two", durable=False)

    assert (tmp_path / "target").read_bytes() == b"one"
    assert (tmp_path / "link").read_bytes() == b"two"
    assert not (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("size", [0, 99, 100])
def test_a_file_is_read_up_to_a_limit(tmp_path, size):
    (tmp_path / "file").write_bytes(bytes(size))

    assert read_file(tmp_path / "file", most=100) == bytes(size)
    with pytest.raises(OSError, match="it has more than 98 bytes"):
        read_file(Path("/dev/zero"), most=98)


def test_reading_takes_the_memory_of_the_file_and_not_of_its_limit(tmp_path):
    path = tmp_path / "small.bin"
    path.write_bytes(b"small")
    tracemalloc.start()
    try:
        assert read_file(path, most=1 << 32) == read_plain(path) == b"small"
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert most < 4 << 20


def test_what_is_not_plain_has_a_limit_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_MOST_OF_STREAM", 100)
    (tmp_path / "file").write_bytes(bytes(101))

    assert len(read_file(tmp_path / "file")) == 101
    monkeypatch.setattr(files, "_MOST_OF_FILE", 100)
    with pytest.raises(OSError, match="it has more than 100 bytes"):
        read_file(tmp_path / "file")
    with pytest.raises(OSError, match="it is not a plain file, and has more than 100 bytes"):
        read_file(Path("/dev/zero"))


def test_the_disk_has_the_content_before_the_name_and_then_the_name(tmp_path, monkeypatch):
    synced = []
    path = tmp_path / "file"
    fsync = os.fsync

    def record(descriptor):
        kind = "directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        synced.append((kind, path.exists()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    write_atomic(path, b"one", durable=True)

    assert synced == [("file", False), ("directory", True)]


@pytest.mark.parametrize("mode", ["rb", "r+b", "ab"])
def test_a_directory_is_no_file(tmp_path, mode):
    with pytest.raises(IsADirectoryError, match="Is a directory"):
        open_file(tmp_path, mode=mode)


@pytest.mark.parametrize("mode", ["rb", "r+b", "ab"])
@pytest.mark.parametrize("is_read", [False, True])
def test_a_pipe_is_opened_by_nobody_who_wants_a_file(tmp_path, mode, is_read):
    path = tmp_path / "file"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK) if is_read else None
    with pytest.raises(OSError, match="not a plain file"):
        open_file(path, mode=mode)
    if reader is not None:
        os.close(reader)


@pytest.mark.parametrize("mode", ["rb", "r+b", "ab"])
def test_links_are_followed_where_that_is_wanted(tmp_path, mode):
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_bytes(b"one")
    link.symlink_to(path)
    open_file(link, mode=mode).close()

    assert read_plain(link) == b"one"
    with pytest.raises(OSError, match="it is a symbolic link"):
        open_file(link, follow=False, mode=mode)
    with pytest.raises(OSError, match="it is a symbolic link"):
        read_plain(link, follow=False)


@pytest.mark.parametrize("kind", ["a link", "a link to nothing", "a pipe", "a device"])
def test_only_a_plain_file_is_locked(tmp_path, kind):
    path, elsewhere = tmp_path / "lock", tmp_path / "elsewhere"
    if kind == "a link":
        elsewhere.write_bytes(b"kept")
    targets = {"a link": elsewhere, "a link to nothing": elsewhere, "a device": "/dev/null"}
    os.mkfifo(path) if kind == "a pipe" else path.symlink_to(targets[kind])

    with pytest.raises(OSError, match="not a plain file"):
        lock_file(path)
    assert elsewhere.exists() == (kind == "a link")


def test_what_is_appended_comes_behind_what_was_there(tmp_path):
    for data in (b"one", b"two"):
        with open_file(tmp_path / "file", mode="ab") as file:
            file.write(data)
            end = file.tell()

    assert (tmp_path / "file").read_bytes() == b"onetwo"
    assert end == 6


def test_a_file_that_is_too_large_is_refused_unread(tmp_path):
    with (tmp_path / "file").open("wb") as file:
        file.truncate(1 << 42)  # more than any machine has memory for
    for read in (read_file, read_plain, partial(read_file, most=1 << 41)):
        with pytest.raises(OSError, match="it has more than"):
            read(tmp_path / "file")


@pytest.mark.parametrize("linked", ["rows", "data", "data/inner", "data/inner/rows"])
def test_no_link_leads_out_of_a_folder_that_was_named(tmp_path, linked):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "rows").write_bytes(b"secret")
    named = tmp_path / "named"
    (named / "data" / "inner").mkdir(parents=True)
    for file in ("rows", "data/inner/rows"):
        (named / file).write_bytes(b"own")
    (tmp_path / "link").symlink_to(named)
    name = linked if linked.endswith("rows") else "data/inner/rows"
    with open_inside(tmp_path / "link", name) as file:
        assert file.read() == b"own"
    (named / linked).rename(tmp_path / "gone")
    (named / linked).symlink_to(tmp_path / "elsewhere" / ("rows" if name == linked else ""))

    with pytest.raises(OSError, match=r"it is a symbolic link, which is not followed.*"):
        open_inside(tmp_path / "link", name)


def test_a_file_in_the_place_of_a_folder_is_no_link(tmp_path):
    (tmp_path / "data").write_bytes(b"")

    with pytest.raises(NotADirectoryError):
        open_inside(tmp_path, "data/rows")
