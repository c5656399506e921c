"""People who play a guest while the hive that learns from them is killed and comes back."""

import asyncio
import signal

import pytest
from tests.faults.serving import Served
from tests.integration.test_guest_trials_people import (
    NAME,
    actions_in,
    exported,
    served,
    start,
    stored,
    until,
)
from tests.scripted_people import Player, TakenOver
from tests.unit.guest_trial_parts import same_rows

pytestmark = pytest.mark.faults


async def test_people_play_on_while_the_hive_is_gone_and_every_tick_is_learned_once(
    tmp_path, caplog
):
    data = tmp_path / "log"
    people = [Player() for _ in range(3)]
    with Served(tmp_path / "hive") as hive:
        async with served(hive, data, tick_rate=100.0) as (server, learning):
            trial_id = await start(server)
            (trial,) = server.orchestrator.live_trials()
            await until(lambda: trial.tick > 0)
            for number, person in enumerate(people):
                seat = TakenOver(person, ticks=100)
                await seat.take_over(server.players, trial_id, f"{NAME}_{number}", f"p{number}")
                await until(lambda person=person: len(person.acted) > 40)
                if number == 0:
                    hive.end(signal.SIGKILL)
                if number == 2:
                    await asyncio.to_thread(hive.start)
                await until(lambda seat=seat: seat.is_handed_back)
                if number == 1:
                    await until(lambda: "the hive is gone" in caplog.text)
            await until(lambda: "the hive is back" in caplog.text)
            await server.trials.terminate([trial_id], is_hard=False)
            await until(lambda: trial.is_over)
            session = learning.runs[NAME].session
        rows = stored(hive)
        written = (await asyncio.to_thread(exported, data)).columns
    warnings = [one.message for one in caplog.records if one.levelname == "WARNING"]

    assert trial.reason == ""
    assert session.failure is None
    assert same_rows(rows, written)
    assert len(actions_in(rows)) in range(297, 301)  # see test_guest_trials_people
    assert sum("the hive is gone" in text for text in warnings) == 1
