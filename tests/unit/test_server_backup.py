"""Backups of a hive's directory, and archives that are not ones."""

import hashlib
import io
import itertools
import json
import os
import stat
import tarfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from arkml.errors import HiveError, UsageError
from arkml.hive.protocol.rows import RowColumns, encode, frame
from arkml.server import backup, restore
from arkml.server.access.callers import AccessRole
from arkml.server.access.token_file import TokenFile
from arkml.server.backup import FORMAT, MANIFEST_NAME, write_backup
from arkml.server.metrics_store import MetricsStore, read_curves
from arkml.server.restore import restore_backup
from arkml.server.upgrade import DATA_VERSION

RUN = "0123456789abcdef"
RECORD = frame(encode(RowColumns.empty(5, 3, 2), seq=1), session=0, first=0)


@pytest.fixture
def data(tmp_path):
    """A hive's directory with one run, whose log has space for more."""
    made = tmp_path / "data"
    files = {
        "tokens.json": b"{}",
        "origin.safetensors": b"origin",
        "lock": b"",
        "hive.log": b"a log",
        "index.sqlite": b"index",
        "index.sqlite-wal": b"more",
        "index.sqlite-journal": b"half",
        "modules/00.wasm": b"\0asm",
        f"runs/{RUN}/run.json": json.dumps({"id": RUN, "rows": 5}).encode(),
        f"runs/{RUN}/.run.json.new": b"half",
        f"runs/{RUN}/best.onnx": b"onnx",
        f"runs/{RUN}/metrics.sqlite": b"a database",
        f"runs/{RUN}/metrics.sqlite-wal": b"what it does not have yet",
        f"runs/{RUN}/metrics.sqlite-shm": b"locks",
        f"runs/{RUN}/metrics.sqlite-journal": b"half",
        f"runs/{RUN}/checkpoints/000000000007.safetensors": b"state",
        f"runs/{RUN}/checkpoints/best": b"7",
        f"runs/{RUN}/published/newest.json": b"{}",
        f"runs/{RUN}/published/0000000001.onnx": b"onnx",
        f"runs/{RUN}/rows/0000000001.rows": RECORD + bytes(1_000),
        f"runs/{RUN}/rows/tallies.json": b'{"sessions": {}}',
    }
    for name, content in files.items():
        path = made / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (made / "deleted").mkdir()
    return made


def contents(directory):
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def run_file(name):
    return f"runs/{RUN}/{name}"


def test_what_is_restored_is_what_was_there(data, tmp_path):
    archive, restored = tmp_path / "hive.tar", tmp_path / "restored"
    summary = write_backup(data, archive)
    told = restore_backup(archive, restored)
    left_out = {"lock", "hive.log", run_file(".run.json.new")}
    left_out |= {run_file(f"metrics.sqlite{end}") for end in ("-shm", "-journal")}
    left_out |= {f"index.sqlite{end}" for end in ("", "-wal", "-journal")}
    expected = {name: file for name, file in contents(data).items() if name not in left_out}
    segment = run_file("rows/0000000001.rows")
    found = contents(restored)

    assert found.pop(segment) == RECORD == expected.pop(segment)[: len(RECORD)]
    assert json.loads(found.pop(run_file("run.json"))) == {"id": RUN, "rows": 5}
    assert expected.pop(run_file("run.json"))
    assert found == expected
    assert summary.runs == told.runs == (RUN,)
    assert summary.files == told.files == len(found) + 2
    assert summary.size == archive.stat().st_size


def test_metrics_that_are_written_meanwhile_are_those_of_one_moment(data, tmp_path):
    """Of each report all points or none, also while SQLite moves them from its log."""
    run = data / "runs" / RUN
    for path in run.glob("metrics.*"):
        path.unlink()
    ended, found = threading.Event(), []

    def write():
        with closing(MetricsStore(run)) as store:
            for at in itertools.count(1):
                store.add([(at, [(f"m{n}", at, 1.0) for n in range(200)])])
                if at == 1:
                    begun.set()
                if ended.is_set():
                    return

    begun, writer = threading.Event(), threading.Thread(target=write)
    writer.start()
    assert begun.wait(60)
    for number in range(6):
        write_backup(data, tmp_path / f"{number}.tar")
        restore_backup(tmp_path / f"{number}.tar", tmp_path / str(number))
        curves = read_curves(tmp_path / str(number) / "runs" / RUN)
        found.append({name: [int(step) for step, _ in curve] for name, curve in curves.items()})
    ended.set()
    writer.join()
    lengths = [len(one["m0"]) for one in found]

    assert lengths == sorted(lengths)
    assert lengths[-1] > lengths[0]
    assert all(
        one == {f"m{n}": list(range(1, length + 1)) for n in range(200)}
        for one, length in zip(found, lengths, strict=True)
    )
    assert not list(tmp_path.rglob("metrics.damaged*"))


@pytest.mark.parametrize("read", ["metrics.sqlite", "metrics.sqlite-wal"])
def test_a_checkpoint_of_the_metrics_while_they_are_read_has_them_read_again(
    data, tmp_path, monkeypatch, read
):
    run = data / "runs" / RUN
    for path in run.glob("metrics.*"):
        path.unlink()
    store, reading, moments = MetricsStore(run), backup._read_file, iter(range(1, 4))

    def add(at):
        store.add([(at, [(f"m{n}/{at}", at, 1.0) for n in range(500)])])

    def interrupted(folder, name):
        found = reading(folder, name)
        if name == read and (at := next(moments, 0)):
            add(2 * at)
            store._opened().execute("PRAGMA wal_checkpoint(TRUNCATE)")
            add(2 * at + 1)
        return found

    add(1)
    monkeypatch.setattr(backup, "_read_file", interrupted)
    write_backup(data, tmp_path / "hive.tar")
    store.close()
    restore_backup(tmp_path / "hive.tar", tmp_path / "restored")
    curves = read_curves(tmp_path / "restored" / "runs" / RUN)

    assert next(moments, None) is None
    assert curves == {f"m{n}/{at}": [(float(at), 1.0)] for at in range(1, 8) for n in range(500)}


def test_only_the_owner_reads_a_backup_and_what_is_restored(data, tmp_path):
    archive, restored = tmp_path / "hive.tar", tmp_path / "restored"
    write_backup(data, archive)
    restore_backup(archive, restored)
    paths = (restored, *restored.rglob("*"))

    assert archive.stat().st_mode & 0o777 == 0o600
    assert {path.stat().st_mode & 0o777 for path in paths if path.is_file()} == {0o600}
    assert {path.stat().st_mode & 0o777 for path in paths if path.is_dir()} == {0o700}


@pytest.mark.parametrize("name", ["note", run_file("run.json")])
def test_a_directory_that_is_replaced_while_it_is_restored_is_not_left(tmp_path, name):
    """The user of the one that it lies in cannot lead root elsewhere."""
    first, second = entry("tokens.json"), entry(name)
    archive = write_archive(tmp_path / "hive.tar", first, second, listing(first, second))
    elsewhere, home = tmp_path / "elsewhere", tmp_path / "home"
    elsewhere.mkdir()
    home.mkdir()

    def replace(*_):
        if not (home / "moved").exists():
            [part] = home.iterdir()
            part.rename(home / "moved")
            part.symlink_to(elsewhere)

    restore_backup(archive, home / "restored", replace)
    assert (home / "moved" / name).is_file()
    assert not list(elsewhere.iterdir())


@pytest.mark.parametrize("empty", [False, True], ids=["new", "empty"])
def test_what_root_restores_is_that_of_the_service(empty, data, tmp_path):
    service = (65_534, 65_534) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    home = tmp_path / "lib"
    restored = home / "restored"
    (restored if empty else home).mkdir(parents=True)
    os.chown(restored if empty else home, *service)
    write_backup(data, tmp_path / "hive.tar")
    restore_backup(tmp_path / "hive.tar", restored)

    for path in (restored, *restored.rglob("*")):
        assert (path.stat().st_uid, path.stat().st_gid) == service


def test_times_of_files_are_kept_for_runs_that_were_in_use(data, tmp_path):
    document = data / run_file("run.json")
    os.utime(document, (1_000_000, 1_000_000))
    write_backup(data, tmp_path / "hive.tar")
    restore_backup(tmp_path / "hive.tar", tmp_path / "restored")

    assert (tmp_path / "restored" / run_file("run.json")).stat().st_mtime == 1_000_000


@pytest.mark.parametrize("year", [1950, 2300])
def test_times_that_an_archive_cannot_have_are_the_nearest_ones(data, tmp_path, year):
    modified = (year - 1970) * 365 * 86_400
    os.utime(data / "tokens.json", (modified, modified))
    write_backup(data, tmp_path / "hive.tar")
    restore_backup(tmp_path / "hive.tar", tmp_path / "restored")

    found = (tmp_path / "restored" / "tokens.json").stat().st_mtime
    assert found == 0 if year < 1970 else 0 < found <= time.time()


def test_the_document_is_read_after_the_rows_without_its_count(data, tmp_path, monkeypatch):
    """A session that joins while the rows are read is in it, and no row is missed."""

    def join_meanwhile(content):
        document = data / run_file("run.json")
        document.write_text(json.dumps({"id": RUN, "rows": 9, "sessions": ["new"]}))
        return len(content)

    monkeypatch.setattr(backup, "_end", join_meanwhile)
    write_backup(data, tmp_path / "hive.tar")
    restore_backup(tmp_path / "hive.tar", tmp_path / "restored")
    kept = json.loads((tmp_path / "restored" / run_file("run.json")).read_text())

    assert kept == {"id": RUN, "rows": 5, "sessions": ["new"]}


def test_segments_that_are_removed_meanwhile_are_read_anew_with_their_counts(
    data, tmp_path, monkeypatch
):
    counts = data / run_file("rows/tallies.json")
    opened, removed = backup._opened, []

    def remove_first(folder, one, name, files):
        path = folder.path / one
        if path.suffix == ".rows" and not removed:
            new = counts.with_name("new.json")
            new.write_text('{"sessions": {"0": [1, 5, 0, 0]}}')
            new.replace(counts)
            path.with_name("0000000002.rows").write_bytes(RECORD)
            path.unlink()
            removed.append(path)
        return opened(folder, one, name, files)

    monkeypatch.setattr(backup, "_opened", remove_first)
    write_backup(data, tmp_path / "hive.tar")
    restore_backup(tmp_path / "hive.tar", tmp_path / "restored")
    rows = tmp_path / "restored" / run_file("rows")

    assert removed
    assert sorted(path.name for path in rows.iterdir()) == ["0000000002.rows", "tallies.json"]
    assert json.loads((rows / "tallies.json").read_text())["sessions"]


def test_a_run_that_is_removed_meanwhile_is_left_out(data, tmp_path, monkeypatch):
    def removed(*_):
        (data / run_file("run.json")).unlink(missing_ok=True)
        raise FileNotFoundError

    monkeypatch.setattr(backup, "_taken_once", removed)
    summary = write_backup(data, tmp_path / "hive.tar")

    assert summary.runs == ()
    assert summary.left_out == (RUN,)
    assert restore_backup(tmp_path / "hive.tar", tmp_path / "restored").runs == ()


def test_a_run_whose_document_is_damaged_is_kept_as_it_is(data, tmp_path):
    (data / run_file("run.json")).write_bytes(b"{half")
    write_backup(data, tmp_path / "hive.tar")
    restore_backup(tmp_path / "hive.tar", tmp_path / "restored")

    assert (tmp_path / "restored" / run_file("run.json")).read_bytes() == b"{half"


LINKED = ["modules", "runs", "origin.safetensors", "other", f"runs/{RUN}", "modules/00.wasm",
          "modules/more", *map(run_file, ["run.json", "rows", "rows/tallies.json", "checkpoints",
          "rows/0000000001.rows", "events", "best.onnx", "published/newest.json"])]  # fmt: skip
"""Places of a hive's files and folders, and some where it has none."""


@pytest.mark.parametrize("name", LINKED)
@pytest.mark.parametrize("kind", ["to a file", "to a folder", "to nothing"])
def test_links_are_neither_followed_nor_kept(data, tmp_path, name, kind):
    secret = tmp_path / "secret"
    if kind == "to a folder":
        (secret / "rows").mkdir(parents=True)
        (secret / "run.json").write_text("{}")
    elif kind == "to a file":
        secret.write_text("secret")
    place = data / name
    if place.exists():
        place.rename(tmp_path / "moved")
    place.symlink_to(secret)

    with pytest.raises(HiveError, match=r"is a symbolic link|it has no folder 'runs'"):
        write_backup(data, tmp_path / "hive.tar")
    assert not list(tmp_path.glob("*hive.tar*"))


def test_a_folder_that_is_replaced_by_a_link_meanwhile_is_not_left(data, tmp_path, monkeypatch):
    secret, rows = tmp_path / "secret", data / run_file("rows")
    secret.mkdir()
    (secret / "tallies.json").write_text("secret")
    opened = backup._opened

    def replace(folder, one, name, files):
        if folder.path == rows and not rows.is_symlink():
            rows.rename(tmp_path / "moved")
            rows.symlink_to(secret)
        return opened(folder, one, name, files)

    monkeypatch.setattr(backup, "_opened", replace)
    write_backup(data, tmp_path / "hive.tar")
    assert rows.is_symlink()
    assert b"secret" not in (tmp_path / "hive.tar").read_bytes()


PLACES = ["tokens.json", "modules/00.wasm", "modules/aa",
          *map(run_file, ["run.json", "best.onnx", "rows/0000000001.rows", "x.onnx"])]  # fmt: skip


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(data, tmp_path, name, kind):
    (data / name).unlink(missing_ok=True)
    os.mknod(data / name, {"pipe": stat.S_IFIFO, "socket": stat.S_IFSOCK}[kind] | 0o600)

    with pytest.raises(HiveError, match=f"{name} is not a plain file"):
        write_backup(data, tmp_path / "hive.tar")
    assert not list(tmp_path.glob("*hive.tar*"))


def test_what_is_no_folder_among_the_runs_is_left_out(data, tmp_path):
    (data / "runs" / "note").write_text("no run")

    assert write_backup(data, tmp_path / "hive.tar").left_out == ("note",)


def test_an_archive_that_is_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "hive.tar")

    with pytest.raises(OSError, match="not a plain file"):
        restore_backup(tmp_path / "hive.tar", tmp_path / "restored")


def test_a_directory_without_runs_is_not_backed_up(tmp_path):
    with pytest.raises(HiveError, match="not the data directory of a hive"):
        write_backup(tmp_path, tmp_path / "hive.tar")


def test_a_backup_is_not_written_into_what_it_backs_up(data):
    with pytest.raises(UsageError, match="outside of it"):
        write_backup(data, data / "runs" / "hive.tar")


def test_a_backup_that_fails_leaves_the_one_before(data, tmp_path, monkeypatch):
    archive = tmp_path / "hive.tar"
    archive.write_bytes(b"of before")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(backup._Archive, "_add", fail)
    with pytest.raises(OSError, match="No space"):
        write_backup(data, archive)
    assert archive.read_bytes() == b"of before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "hive.tar"]


def test_a_pipe_takes_a_backup_and_stays_one(data, tmp_path):
    pipe, plain = tmp_path / "pipe", tmp_path / "hive.tar"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as pool:
        read = pool.submit(pipe.read_bytes)
        summary = write_backup(data, pipe)
        plain.write_bytes(read.result())
    restored = restore_backup(plain, tmp_path / "restored")

    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert summary.size == plain.stat().st_size
    assert (summary.files, summary.runs) == (restored.files, restored.runs)


def test_progress_counts_files(data, tmp_path):
    told = []
    summary = write_backup(data, tmp_path / "hive.tar", lambda *parts: told.append(parts))

    assert [done for done, _ in told] == list(range(1, summary.files + 1))
    assert all(done <= total for done, total in told)


def entry(name, content=b"x", kind=tarfile.REGTYPE, link="", size=None):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    info.size = len(content) if size is None else size
    return info, content


def listing(*entries, **other):
    files = [
        {"name": info.name, "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for info, content in entries
    ]
    values = {"format": FORMAT, "data_version": DATA_VERSION, "release": "1", "created_at": 1}
    return entry(MANIFEST_NAME, json.dumps({**values, "files": files, **other}).encode())


def write_archive(path, *entries):
    with path.open("wb") as file:
        for info, content in entries:
            file.write(info.tobuf(tarfile.USTAR_FORMAT))
            file.write(content + bytes(-len(content) % 512))
        file.write(bytes(1_024))
    return path


GOOD = entry(run_file("run.json"), b"{}")
NAMES = ["/etc/passwd", "../out", "runs/../../out", "runs//x", "./lock", "runs/.hidden",
         "runs/a\nb", "other/file", "runs/a/b/c/d/e/f/g/h", "..", "runs/", "x" * 99 + "/y",
         "C:\\x", "lock", "tokens.lock", "hive.log", "index.sqlite", "index.sqlite-journal",
         "index.sqlite-wal", "index.sqlite-shm"]  # fmt: skip
KINDS = [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE,
         tarfile.GNUTYPE_SPARSE, tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME]  # fmt: skip
WRONG = {
    **{f"the name {name!r}": ([entry(name)], "not the name of a file") for name in NAMES},
    **{f"the kind {kind!r}": ([entry("runs/a", b"", kind, "/etc/passwd")], "not a plain file")
       for kind in KINDS},
    "a file that is there twice": ([GOOD, GOOD], "in it twice"),
    "a file that is a folder": ([entry("runs/a"), entry("runs/a/b")], "a file and a folder"),
    "a folder that is a file": ([entry("runs/a/b"), entry("runs/a")], "a file and a folder"),
    "more than the archive has": ([entry("runs/a", size=1 << 32)], "longer than the archive"),
    "no manifest": ([GOOD, (tarfile.TarInfo("end"), b"")], "ends after 2 files"),
    "one file more": ([GOOD, entry("runs/b"), listing(GOOD)], "'runs/b' is not in its manifest"),
    "one file less": ([GOOD, listing(GOOD, entry("runs/b"))], "of its manifest is missing"),
    "another content": ([entry(GOOD[0].name, b"[]"), listing(GOOD)], "another SHA-256"),
    "a newer format": ([GOOD, listing(GOOD, format=FORMAT + 1)], "use the release that wrote it"),
    "newer data": (
        [GOOD, listing(GOOD, data_version=DATA_VERSION + 1)], "use the release that wrote it",
    ),
    "a manifest without files": ([GOOD, listing(files=None)], "does not list files"),
    "a manifest that is not JSON": ([GOOD, entry(MANIFEST_NAME, b"?")], "manifest cannot be read"),
    "a manifest that is a list": ([GOOD, entry(MANIFEST_NAME, b"[]")], "manifest cannot be read"),
    "a manifest nested deeply": (
        [GOOD, entry(MANIFEST_NAME, b'{"x":' + b"[" * 4_000)], "manifest cannot be read",
    ),
    "a manifest larger than its files": (
        [GOOD, listing(GOOD, more=[[]] * 2_000)], r"its manifest has 8\d\d\d bytes",
    ),
    "a manifest that lists numbers": ([GOOD, listing(files=[1])], "does not list files"),
    "a format that is no number": ([GOOD, listing(GOOD, format="1")], 'its format is "1", and'),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_an_archive_that_is_not_a_whole_backup_leaves_nothing(tmp_path, wrong):
    entries, reason = WRONG[wrong]
    archive = write_archive(tmp_path / "hive.tar", *entries)

    with pytest.raises(HiveError, match=reason):
        restore_backup(archive, tmp_path / "restored")
    assert [path.name for path in tmp_path.iterdir()] == ["hive.tar"]


def test_the_smallest_backup_is_restored(tmp_path):
    archive = write_archive(tmp_path / "hive.tar", GOOD, listing(GOOD))

    assert restore_backup(archive, tmp_path / "new" / "restored").runs == (RUN,)
    assert contents(tmp_path / "new" / "restored") == {GOOD[0].name: b"{}"}


@pytest.mark.parametrize("created_at", [10**300, -1, 1 << 63, 1.5, True, None])
def test_a_time_that_cannot_be_is_none(tmp_path, created_at):
    archive = write_archive(tmp_path / "hive.tar", GOOD, listing(GOOD, created_at=created_at))

    assert restore_backup(archive, tmp_path / "restored").created_at == 0


def test_a_restore_names_the_tokens_that_are_valid_again(data, tmp_path, monkeypatch):
    (data / "tokens.json").unlink()
    tokens = TokenFile(data)
    tokens.add("alice", AccessRole.ACT, None)
    tokens.add("bob", AccessRole.ADMIN, 60)
    write_backup(data, tmp_path / "hive.tar")
    tokens.revoke("alice")
    now = time.time()
    monkeypatch.setattr(restore.time, "time", lambda: now + 61)
    told = restore_backup(tmp_path / "hive.tar", tmp_path / "restored")

    assert [one.name for one in told.tokens] == ["alice"]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_a_backup_that_is_cut_off_is_refused(data, tmp_path, share):
    archive = tmp_path / "hive.tar"
    write_backup(data, archive)
    os.truncate(archive, int(share * archive.read_bytes().rindex(b'"sha256"')))

    with pytest.raises(HiveError, match="is not a whole backup of a hive"):
        restore_backup(archive, tmp_path / "restored")
    assert not (tmp_path / "restored").exists()


@pytest.mark.parametrize("found", [b"onnx", b"{}", RECORD, b"runs/", b'"sha256"', b"ustar"])
def test_a_backup_with_another_byte_is_refused(data, tmp_path, found):
    archive = tmp_path / "hive.tar"
    write_backup(data, archive)
    content = bytearray(archive.read_bytes())
    content[content.index(found)] ^= 0x41
    archive.write_bytes(content)

    with pytest.raises(HiveError, match="is not a whole backup of a hive"):
        restore_backup(archive, tmp_path / "restored")
    assert not (tmp_path / "restored").exists()


def test_a_directory_that_is_used_is_left_alone(data, tmp_path):
    write_backup(data, tmp_path / "hive.tar")
    before = contents(data)

    with pytest.raises(UsageError, match="is not empty"):
        restore_backup(tmp_path / "hive.tar", data)
    assert contents(data) == before


def test_an_empty_directory_is_filled(data, tmp_path):
    (tmp_path / "restored").mkdir()
    write_backup(data, tmp_path / "hive.tar")

    assert restore_backup(tmp_path / "hive.tar", tmp_path / "restored").runs == (RUN,)


def test_a_time_in_the_future_is_not_taken_over(tmp_path):
    info, content = entry(run_file("run.json"), b"{}")
    info.mtime = int(time.time()) + 10**6
    archive = write_archive(tmp_path / "hive.tar", (info, content), listing((info, content)))
    restore_backup(archive, tmp_path / "restored")

    assert (tmp_path / "restored" / info.name).stat().st_mtime <= time.time()


def test_our_archives_are_those_of_tar(data, tmp_path):
    write_backup(data, tmp_path / "hive.tar")
    with tarfile.open(tmp_path / "hive.tar") as tar:
        names = tar.getnames()
        manifest = json.load(io.TextIOWrapper(tar.extractfile(MANIFEST_NAME)))

    assert names[-1] == MANIFEST_NAME
    assert [one["name"] for one in manifest["files"]] == names[:-1]
