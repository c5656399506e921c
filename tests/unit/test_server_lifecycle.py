"""The time that a run may last."""

import time

from arkml.hive.protocol.runs import RunRequest
from arkml.hive.protocol.settings import Settings
from arkml.server.hive import Hive
from arkml.server.options import ServeOptions

WEEK = 7 * 86_400 * 10**9


async def is_over_after(tmp_path, monkeypatch, *, wall=0, monotonic=0.0):
    """Return whether a run of an hour is over once the clocks were set."""
    options = ServeOptions(tmp_path, spare=False, learner=("-c", "pass"))
    hive = await Hive.open(options, "127.0.0.1:1")
    try:
        run, _ = await hive.create(RunRequest("run", "game", Settings(2, 1), seconds=3_600))
        began, passed = time.time_ns(), time.monotonic()
        with monkeypatch.context() as clocks:
            clocks.setattr(time, "time_ns", lambda: began + wall)
            clocks.setattr(time, "monotonic", lambda: passed + monotonic)
            await run.lifecycle._stop_or_pause_unused()
        return run.document.is_over
    finally:
        await hive.close()


async def test_a_wall_clock_that_is_set_does_not_end_a_run(tmp_path, monkeypatch):
    assert not await is_over_after(tmp_path, monkeypatch, wall=WEEK)


async def test_a_run_ends_after_its_seconds(tmp_path, monkeypatch):
    assert await is_over_after(tmp_path, monkeypatch, monotonic=3_601.0)
