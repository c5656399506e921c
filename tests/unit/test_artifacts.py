"""The machine code on disk: kept for one user, authenticated, and never believed where in doubt."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from arkml.base import loggers
from arkml.runtime.compilation import artifacts
from arkml.runtime.compilation.artifacts import entry_name, load, save

CODE = b"machine code" * 100
STACK = 1 << 19
NAME = entry_name(b"a module", STACK)
MANY = """
import sys
from arkml.runtime.compilation.artifacts import load, save
for turn in range(200):
    name = f"{turn % 3:064x}"
    save(name, name.encode() * 1_000)
    assert load(name) in (None, name.encode() * 1_000)
"""


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    monkeypatch.setenv("ARKML_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    loggers._noticed.clear()
    return tmp_path


@pytest.fixture
def entry(places):
    save(NAME, CODE)
    return places / "cache" / NAME


def mode(path):
    return path.stat().st_mode & 0o777


@pytest.mark.usefixtures("entry")
def test_an_entry_is_loaded_as_it_was_saved():
    assert load(NAME) == CODE
    assert load(entry_name(b"another module", STACK)) is None


def test_entries_and_their_key_are_private_and_apart(entry, places):
    key = places / "state" / "arkml" / "cache.key"

    assert [mode(path) for path in (entry, key)] == [0o600, 0o600]
    assert [mode(path.parent) for path in (entry, key)] == [0o700, 0o700]
    assert [path.name for path in entry.parent.iterdir()] == [NAME]
    assert [path.name for path in key.parent.iterdir()] == ["cache.key"]


def test_an_entry_depends_on_everything_that_machine_code_depends_on(monkeypatch):
    names = {NAME, entry_name(b"a module", 2 * STACK), entry_name(b"a modulf", STACK)}
    monkeypatch.setattr(artifacts, "WASMTIME", "50.0.99")
    names.add(entry_name(b"a module", STACK))
    monkeypatch.setattr(artifacts, "processor", lambda: "flags : fewer")
    names.add(entry_name(b"a module", STACK))
    monkeypatch.setattr(artifacts, "settings", lambda _: {"epoch_interruption": False})
    names.add(entry_name(b"a module", STACK))

    assert len(names) == 6


@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 1_000])
def test_a_torn_entry_is_not_there(entry, size):
    entry.write_bytes(entry.read_bytes()[:size])

    assert load(NAME) is None


@pytest.mark.parametrize("place", [0, 31, 32, 700, -1])
def test_an_entry_with_a_changed_byte_is_not_there(entry, place):
    content = bytearray(entry.read_bytes())
    content[place] ^= 1
    entry.write_bytes(content)

    assert load(NAME) is None


def test_a_damaged_entry_is_replaced(entry):
    entry.write_bytes(b"damaged")
    save(NAME, CODE)

    assert load(NAME) == CODE


def test_an_entry_under_another_name_is_not_there(entry):
    other = entry_name(b"another module", STACK)
    entry.rename(entry.with_name(other))

    assert load(other) is None


@pytest.mark.usefixtures("entry")
def test_an_entry_of_another_key_is_not_there(places):
    (places / "state" / "arkml" / "cache.key").unlink()

    assert load(NAME) is None
    save(NAME, CODE)
    assert load(NAME) == CODE


@pytest.mark.parametrize("mode", [0o640, 0o602, 0o666])
def test_an_entry_that_others_may_use_is_not_there(entry, mode):
    entry.chmod(mode)

    assert load(NAME) is None


def test_an_entry_behind_a_link_is_not_there(entry, places):
    entry.rename(places / "elsewhere")
    entry.symlink_to(places / "elsewhere")

    assert load(NAME) is None


def test_a_pipe_in_the_place_of_an_entry_is_not_there(entry):
    entry.unlink()
    os.mkfifo(entry, 0o600)

    assert load(NAME) is None


@pytest.mark.parametrize("folder", ["cache", "state/arkml"])
@pytest.mark.usefixtures("entry")
def test_a_directory_that_others_may_use_turns_the_cache_off(places, folder, caplog):
    (places / folder).chmod(0o750)
    save(NAME, b"changed")

    assert load(NAME) is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "is not private to this user" in caplog.text
    (places / folder).chmod(0o700)
    assert load(NAME) == CODE


def test_a_directory_behind_a_link_turns_the_cache_off(entry, places):
    entry.parent.rename(places / "elsewhere")
    entry.parent.symlink_to(places / "elsewhere")

    assert load(NAME) is None


@pytest.mark.usefixtures("entry")
def test_what_another_user_owns_turns_the_cache_off(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 12_345)
    save(NAME, b"changed")

    assert load(NAME) is None
    monkeypatch.undo()


@pytest.mark.parametrize("content", [b"", b"short", bytes(33)])
@pytest.mark.usefixtures("entry")
def test_a_damaged_key_turns_the_cache_off(places, content, caplog):
    (places / "state" / "arkml" / "cache.key").write_bytes(content)

    assert load(NAME) is None
    assert f"cache.key has {len(content)} bytes" in caplog.text


@pytest.mark.usefixtures("entry")
def test_a_key_that_others_may_read_turns_the_cache_off(places):
    (places / "state" / "arkml" / "cache.key").chmod(0o644)

    assert load(NAME) is None


def test_the_cache_may_be_turned_off(places, monkeypatch):
    monkeypatch.setenv("ARKML_CACHE", "off")
    save(NAME, CODE)

    assert load(NAME) is None
    assert list(places.iterdir()) == []


def test_a_cache_that_cannot_be_written_does_no_harm(places, monkeypatch):
    (places / "file").touch()
    monkeypatch.setenv("ARKML_CACHE", str(places / "file" / "cache"))
    save(NAME, CODE)

    assert load(NAME) is None


@pytest.mark.usefixtures("entry")
def test_a_cache_on_a_read_only_disk_is_read(monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    for name in ("utime", "rename", "unlink", "mkdir", "link"):
        monkeypatch.setattr(os, name, refuse)

    assert load(NAME) == CODE
    save(NAME, CODE)
    save(entry_name(b"another module", STACK), CODE)


@pytest.mark.usefixtures("places")
def test_a_user_without_a_home_has_no_cache(monkeypatch):
    for name in ("ARKML_CACHE", "XDG_STATE_HOME", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", _no_home)
    save(NAME, CODE)

    assert load(NAME) is None


def _no_home():
    raise RuntimeError("Could not determine home directory.")


def test_without_the_variable_the_cache_lies_in_the_users_directory(places, monkeypatch):
    monkeypatch.delenv("ARKML_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(places / "home"))
    save(NAME, CODE)

    assert (places / "home" / "arkml" / "modules" / NAME).exists()


def test_a_cache_that_is_named_below_the_working_directory_is_in_the_home_instead(
    places, monkeypatch
):
    monkeypatch.chdir(places)
    monkeypatch.delenv("ARKML_CACHE")
    monkeypatch.setenv("HOME", str(places / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    save(NAME, CODE)

    assert (places / "home" / ".cache" / "arkml" / "modules" / NAME).exists()
    assert not (places / "relative").exists()


def test_the_variable_may_name_a_home(places, monkeypatch):
    monkeypatch.setenv("HOME", str(places))
    monkeypatch.setenv("ARKML_CACHE", "~/modules")
    save(NAME, CODE)

    assert (places / "modules" / NAME).exists()


@pytest.mark.parametrize(
    ("bound", "most"), [("MOST_BYTES", 3 * (len(CODE) + 32)), ("_MOST_ENTRIES", 3)]
)
def test_the_oldest_entries_are_removed_beyond_the_bound(places, monkeypatch, bound, most):
    monkeypatch.setattr(artifacts, bound, most)
    monkeypatch.setattr(artifacts, "_CLEAN_EVERY", 1)
    names = [entry_name(bytes((i,)), STACK) for i in range(4)]
    for age, name in enumerate(names[:3]):
        save(name, CODE)
        os.utime(places / "cache" / name, (age, age))
    assert load(names[0]) == CODE
    save(names[3], CODE)

    assert [load(name) is not None for name in names] == [True, False, True, True]


@pytest.mark.usefixtures("places")
def test_a_process_looks_at_all_entries_once_in_megabytes_that_it_writes(monkeypatch):
    cleaned = []
    monkeypatch.setattr(artifacts, "_clean", cleaned.append)
    monkeypatch.setattr(artifacts._Written, "since", artifacts._CLEAN_EVERY)
    for number in range(64):
        save(entry_name(bytes((number,)), STACK), CODE)

    assert len(cleaned) == 1
    save(NAME, CODE)
    assert len(cleaned) == 2


def test_the_parts_that_a_killed_process_left_are_removed(entry, monkeypatch):
    monkeypatch.setattr(artifacts, "_CLEAN_EVERY", 1)
    old, new = entry.with_name(".1-old"), entry.with_name(".1-new")
    for path in (old, new):
        path.touch()
    os.utime(old, (0, 0))
    save(NAME, CODE)

    assert not old.exists()
    assert new.exists()


def test_processes_that_save_and_load_at_once_do_not_disturb_each_other(places):
    processes = [
        subprocess.Popen([sys.executable, "-c", MANY], stderr=subprocess.PIPE) for _ in range(2)
    ]
    messages = [process.communicate()[1].decode() for process in processes]

    assert [process.returncode for process in processes] == [0, 0], messages
    assert len(list((places / "cache").iterdir())) == 3


def test_the_tests_do_not_use_the_users_own_cache(monkeypatch):
    monkeypatch.undo()

    assert Path(os.environ["ARKML_CACHE"]).parent.name.startswith("arkml-tests-")
    assert Path(os.environ["XDG_STATE_HOME"]).parent.name.startswith("arkml-tests-")
