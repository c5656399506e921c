"""The time that a run may last, and the folders that it is opened with."""

import contextlib
import time

import pytest
from msgspec.structs import replace

from arkml.errors import HiveRefused
from arkml.hive.protocol.runs import OnConflict, Role, RunRequest
from arkml.hive.protocol.settings import Settings
from arkml.server.hive import Hive
from arkml.server.serve_options import ServeOptions
from arkml.server.sessions import RunSession

HOUR = 3_600
WEEK = 7 * 86_400
REQUEST = RunRequest("run", "game", Settings(2, 1), seconds=HOUR)


class Clocks:
    """The clocks of this machine, which a test moves on or back."""

    def __init__(self, monkeypatch):
        self.wall = self.monotonic = 0.0
        time_ns, monotonic = time.time_ns, time.monotonic
        monkeypatch.setattr(time, "time_ns", lambda: time_ns() + round(self.wall * 1e9))
        monkeypatch.setattr(time, "monotonic", lambda: monotonic() + self.monotonic)

    def sleep(self, seconds):
        self.wall += seconds
        self.monotonic += seconds


@pytest.fixture
def clocks(monkeypatch):
    return Clocks(monkeypatch)


def options(directory):
    return ServeOptions(directory, spare=False, learner=("-c", "pass"))


@contextlib.asynccontextmanager
async def opened(directory):
    hive = await Hive.open(options(directory), "127.0.0.1:1")
    try:
        yield hive
    finally:
        await hive.close()


async def is_over(run):
    """Let a run that is in use look at its clocks."""
    run.lifecycle.use(RunSession("a" * 32, 0, "join-key", Role.ACT))
    await run.lifecycle._stop_or_pause_unused()
    return run.document.is_over


async def test_a_wall_clock_that_is_set_does_not_end_a_run(tmp_path, clocks):
    async with opened(tmp_path) as hive:
        run, _ = await hive.create(REQUEST)
        clocks.wall += WEEK
        assert not await is_over(run)


async def test_a_run_ends_after_its_seconds(tmp_path, clocks):
    async with opened(tmp_path) as hive:
        run, _ = await hive.create(REQUEST)
        clocks.sleep(HOUR - 60)
        assert not await is_over(run)
        clocks.sleep(61)
        assert await is_over(run)


async def test_the_time_in_which_a_run_is_stopped_does_not_count(tmp_path, clocks):
    """It is resumed by whoever joins it, a week later, and ends when its own hour is over."""
    async with opened(tmp_path) as hive:
        run, _ = await hive.create(REQUEST)
        clocks.sleep(HOUR / 2)
        assert not await is_over(run)
        await run.lifecycle.stop(for_all=False)
        clocks.sleep(WEEK)
        await run.join("a-join-key", 2, 1, "act")
        assert not await is_over(run)
        clocks.sleep(HOUR / 2 + 60)
        assert await is_over(run)


async def test_the_time_in_which_its_hive_is_away_does_not_count(tmp_path, clocks):
    async with opened(tmp_path) as hive:
        run, _ = await hive.create(REQUEST)
        clocks.sleep(HOUR / 2)
        assert not await is_over(run)
    clocks.wall += WEEK
    clocks.monotonic = -HOUR  # of a machine that was started again
    async with opened(tmp_path) as hive:
        run = hive.run(run.document.id)
        await run.lifecycle.start()
        assert not await is_over(run)
        clocks.sleep(HOUR / 2 + 60)
        assert await is_over(run)


async def test_a_run_that_has_lasted_its_seconds_is_not_resumed(tmp_path, clocks):
    async with opened(tmp_path) as hive:
        run, _ = await hive.create(REQUEST)
        clocks.sleep(HOUR)
        assert await is_over(run)
        assert run.lifecycle.history.entries[-1].text.startswith(
            "stopped: it has lasted the 3,600 s"
        )
        before = run.document.as_json()
        with pytest.raises(HiveRefused, match="is stopped: it has lasted the 3,600 s") as by_name:
            await hive.create(replace(REQUEST, on_conflict=OnConflict.JOIN))
        with pytest.raises(
            HiveRefused, match="is stopped: it has lasted the 3,600 s"
        ) as by_session:
            await run.join("a-join-key", 2, 1, "act")

        assert by_name.value.status == by_session.value.status == 410
        assert run.document.as_json() == before


@pytest.mark.parametrize("place", ["", "rows", "checkpoints", "policies", "events", "published"])
async def test_a_run_with_linked_folders_is_not_opened(tmp_path, caplog, place):
    async with opened(tmp_path / "data") as hive:
        run, _ = await hive.create(REQUEST)
        await run.stop()
    folder, elsewhere = run.directory / place, tmp_path / "elsewhere"
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)
    before = sorted(elsewhere.rglob("*"))
    async with opened(tmp_path / "data") as hive:
        assert hive.runs() == []

    assert f"{folder} is a symbolic link, which a hive does not make" in caplog.text
    assert sorted(elsewhere.rglob("*")) == before


async def test_a_run_that_cannot_be_closed_leaves_nothing_else_open(tmp_path, monkeypatch):
    hive = await Hive.open(options(tmp_path), "127.0.0.1:1")
    broken, _ = await hive.create(REQUEST)
    other, _ = await hive.create(replace(REQUEST, name="other"))

    async def fail(_):
        raise OSError("no disk")

    monkeypatch.setattr(broken, "close", fail)
    with pytest.raises(OSError, match="no disk"):
        await hive.close()
    left = other.is_active

    async with opened(tmp_path) as again:  # whose lock is free
        assert (left, len(again.runs())) == (False, 2)
