"""A clock that is set while a hive serves: runs, sessions and metrics are as before."""

import signal

import pytest
from tests.faults.player import Player, assert_all_is_there, learners_in
from tests.faults.serving import Served

from arkml.hive.protocol.runs import Status

pytestmark = pytest.mark.faults

HOUR, DAY = 3_600, 86_400
JUMPS = (DAY, -DAY, 3 * HOUR, -400 * DAY, 0)
"""Seconds by which the clock is wrong, one after another."""

SECONDS = 2 * HOUR
"""How long the run may last."""


def test_a_clock_that_jumps_ends_no_run_and_loses_no_row(tmp_path):
    clock = tmp_path / "clock"
    clock.write_text("0")
    seen = []

    def jump(seconds):
        later = clock.with_suffix(".new")
        later.write_text(str(seconds))
        later.replace(clock)

    with Served(tmp_path / "data", clock=clock) as served:
        player = Player(served.grant(), seconds=SECONDS)
        with player.playing():
            assert player.gets_a_version()
            for seconds in JUMPS:
                jump(seconds)
                assert player.gets_a_version(), f"{seconds} s"
                assert player.gets_a_version(), f"{seconds} s"
                seen.append(player.client.run(player.run.id).result())
            jump(-DAY)
            lives = len(learners_in(served.data))
            served.end(signal.SIGKILL)
            served.start()
            recovered = player.recovers(served.data, lives)
        series = player.client.series(player.run.id, "time/total_timesteps").result()
        assert_all_is_there(player)
        player.close()
    times, steps = [point.at for point in series], [point.step for point in series]

    assert recovered
    assert [info.status for info in seen] == [Status.RUNNING] * len(JUMPS)
    assert [(info.sessions, info.reason, info.ended_at) for info in seen] == [(1, "", 0)] * len(
        JUMPS
    )
    assert len(series) > len(JUMPS)
    assert times == sorted(set(times))
    assert steps == sorted(steps)
    assert times[-1] - times[0] < HOUR * 10**9
