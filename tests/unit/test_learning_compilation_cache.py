"""The cache of compiled programs: private, bounded, and never believed where it is torn."""

import errno
import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from arkml.learning import compilation_cache
from arkml.learning.compilation_cache import cache_directory, clean, open_cache

LEARN = """
import logging, sys, time
logging.basicConfig(level=logging.WARNING, format="log: %(message)s")
import numpy as np
from arkml.hive.protocol.rows import RowColumns, RowKind
from arkml.hive.protocol.settings import Settings
from arkml.learning.normalizer import Normalizer
from arkml.learning.sac import Sac
made = Sac(Settings(2, 1, hidden=8, layers=1, batch_size=4), Normalizer(2, active=False))
rows = RowColumns.empty(2_000, 2, 1)
rows.step[:] = np.arange(2_000)
made.buffer.add(0, RowKind.TRAINING, rows)
import jax.monitoring
hits = []
jax.monitoring.register_event_listener(lambda event, **_: hits.append(event))
print(sorted(made.train(3))[0], hits.count("/jax/compilation_cache/cache_hits"))
"""


class Configuration:
    """The part of JAX that keeps its configuration."""

    def __init__(self):
        self.values = {}
        self.config = self

    def update(self, name, value):
        self.values[name] = value


@pytest.fixture
def base(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def start():
    return subprocess.Popen(
        [sys.executable, "-c", LEARN], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def learned():
    process = start()
    output, _ = process.communicate()
    assert process.returncode == 0, output
    return output


@pytest.mark.learns
def test_a_second_learner_finds_what_the_first_has_compiled(base):
    first, second = learned(), learned()

    assert first.split() == ["train/actor_loss", "0"]
    assert second.split() == ["train/actor_loss", "1"]
    directory = cache_directory()
    assert base in directory.parents
    assert directory.stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
@pytest.mark.usefixtures("base")
def test_two_learners_at_once_do_no_harm():
    together = [start(), start()]
    outputs = [process.communicate()[0] for process in together]

    assert [process.returncode for process in together] == [0, 0], outputs
    assert learned().split() == ["train/actor_loss", "1"]


@pytest.mark.learns
@pytest.mark.usefixtures("base")
@pytest.mark.parametrize("cut", [pytest.param(0, marks=pytest.mark.slow), -100])
def test_a_torn_entry_is_removed_and_made_again(cut):
    learned()
    (entry,) = cache_directory().glob("*-cache")
    whole = entry.read_bytes()
    entry.write_bytes(whole[:cut])

    assert learned().split() == ["train/actor_loss", "0"]
    assert len(entry.read_bytes()) > len(whole) // 2
    assert learned().split() == ["train/actor_loss", "1"]


@pytest.mark.usefixtures("base")
@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_directory_that_others_may_write_to_is_not_used(caplog, mode):
    cache_directory().mkdir(parents=True)
    cache_directory().chmod(mode)
    jax = Configuration()

    assert open_cache(jax) is None
    assert jax.values == {}
    assert "others may write" in caplog.text


def test_a_link_in_the_place_of_the_directory_is_not_used(base, caplog):
    elsewhere = base / "elsewhere"
    elsewhere.mkdir()
    (base / "arkml").mkdir(mode=0o700)
    cache_directory().symlink_to(elsewhere)

    assert open_cache(Configuration()) is None
    assert "is not a directory" in caplog.text


@pytest.mark.usefixtures("base")
def test_a_directory_on_a_read_only_disk_is_read(monkeypatch):
    directory = open_cache(Configuration())
    for name in ("a-cache", "torn-cache"):
        (directory / name).write_bytes(zlib.compress(b"program")[: 4 if "torn" in name else None])

    def refuse(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    for name in ("unlink", "chmod"):
        monkeypatch.setattr(Path, name, refuse)
    monkeypatch.setattr(compilation_cache, "MOST_BYTES", 1)
    jax = Configuration()

    assert open_cache(jax) == directory
    assert jax.values["jax_compilation_cache_dir"] == str(directory)


def test_a_user_without_a_home_has_no_cache(monkeypatch, caplog):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)

    assert open_cache(Configuration()) is None
    assert "compiled programs are not kept: Could not determine home" in caplog.text


@pytest.mark.usefixtures("base")
def test_programs_that_compile_fast_are_kept_too():
    jax = Configuration()
    directory = open_cache(jax)

    assert jax.values["jax_compilation_cache_dir"] == str(directory)
    assert jax.values["jax_persistent_cache_min_compile_time_secs"] == 0.0


@pytest.mark.usefixtures("base")
def test_another_processor_has_another_directory(monkeypatch):
    here = cache_directory()
    monkeypatch.setattr(compilation_cache, "processor", lambda: "flags : fewer")

    assert cache_directory() != here


def test_the_oldest_entries_beyond_the_bound_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(compilation_cache, "MOST_BYTES", 500)
    data = zlib.compress(os.urandom(200))
    for number in range(5):
        path = tmp_path / f"{number}-cache"
        path.write_bytes(data)
        os.utime(path, (number, number))
    Path(tmp_path, "notes").write_text("not an entry")
    clean(tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["3-cache", "4-cache", "notes"]


def test_an_entry_is_read_once_to_see_that_it_is_whole(tmp_path, monkeypatch):
    whole, torn = tmp_path / "1-cache", tmp_path / "2-cache"
    whole.write_bytes(zlib.compress(os.urandom(200)))
    torn.write_bytes(whole.read_bytes()[:100])
    clean(tmp_path)
    monkeypatch.setattr(compilation_cache, "_is_whole", pytest.fail)
    clean(tmp_path)

    assert list(tmp_path.iterdir()) == [whole]
