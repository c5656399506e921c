"""People take actors over, and watch, with `players.js` over a real web port."""

import asyncio
import contextlib
import json
from importlib.resources import files
from pathlib import Path

import pytest
from tests.integration.hand_driven import STANDING, hosting_by_hand
from tests.node import running_module
from tests.waiting import PATIENCE

from arkml.trials.server.web.port import WebPort
from arkml.trials.server.web.web_options import WebOptions
from arkml.trials.wire.actor_pb2 import ActorInitialOutput
from arkml.trials.wire.guest_pb2 import Action

PROGRAM = Path(__file__).with_name("trials_players.mjs")
SDK = Path(str(files("arkml.trials"))) / "js"
NAME = "Jörg, 100%"
QUARTER = Action(continuous=[0.25]).SerializeToString()


class World:
    """A web port over trials that are driven by hand, with a trial of two balls."""

    def __init__(self, game, port):
        self.game = game
        self.port = port

    @contextlib.asynccontextmanager
    async def running(self, scenario, **given):
        """A process that plays a scenario."""
        given = {
            "players": (SDK / "players.js").as_uri(),
            "cogment": (SDK / "cogment.js").as_uri(),
            "guest": (SDK / "guest_pb.js").as_uri(),
            "endpoint": self.port.endpoint(),
            "trialId": "one",
            "scenario": scenario,
            **given,
        }
        async with running_module(PROGRAM, given) as process:
            yield process


async def line_of(process):
    return (await asyncio.wait_for(process.stderr.readline(), PATIENCE)).decode().strip()


async def result_of(process):
    out, err = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert process.returncode == 0, err.decode()
    return json.loads(out)


@pytest.fixture
async def world():
    async with hosting_by_hand() as game:
        port = WebPort(game.server, WebOptions())
        await port.open()
        await game.start("one")
        yield World(game, port)
        await port.close()


async def test_a_person_plays_and_hands_back_by_returning(world):
    async with world.running("returns") as process:
        await world.game.events("one", 1)
        world.game.tick("one")
        applied = await world.game.applied("one", 1)
        world.game.tick("one")
        events = await world.game.events("one", 2)
        result = await result_of(process)
    after = await world.game.applied("one", 2)

    assert events == [("ball_0", NAME, "taken over"), ("ball_0", NAME, "handed back")]
    assert applied == [(NAME, QUARTER), ("", STANDING)]
    assert after == [("", STANDING), ("", STANDING)]
    assert result == {
        "observations": [[0, 0], [1, 0], [2, 0]], "types": ["ACTIVE"] * 3, "rewards": [0.5, 0.5],
        "name": "ball_0", "className": "ball", "envName": "env", "isLost": False, "isOver": True,
        "warnings": [],
    }  # fmt: skip


async def test_a_person_hands_back_in_the_midst_of_its_loop_of_events(world):
    async with world.running("handsBack") as process:
        await world.game.events("one", 1)
        world.game.tick("one")
        await world.game.applied("one", 1)
        world.game.tick("one")
        events = await world.game.events("one", 2)
        result = await result_of(process)

    assert events[1] == ("ball_0", NAME, "handed back")
    assert result["types"] == ["ACTIVE"] * 3
    assert (result["isOver"], result["isLost"], result["warnings"]) == (True, False, [])


async def test_a_person_sees_the_end_of_the_trial(world):
    async with world.running("toTheEnd") as process:
        await world.game.events("one", 1)
        await world.game.end("one")
        result = await result_of(process)

    assert result["observations"] == [[0, 0], [1, 0], [2, 0]]
    assert result["types"][-1] == "FINAL"
    assert (result["isOver"], result["isLost"]) == (True, False)


async def test_a_person_learns_that_the_connection_is_lost(world):
    async with world.running("toTheEnd") as process:
        await world.game.events("one", 1)
        assert await line_of(process) == "observed"
        await world.port.close()
        events = await world.game.events("one", 2)
        result = await result_of(process)

    assert events[1] == ("ball_0", NAME, "handed back")
    assert (result["isOver"], result["isLost"]) == (True, True)


async def test_a_program_that_fails_hands_back_and_its_error_is_thrown(world):
    async with world.running("fails") as process:
        events = await world.game.events("one", 2)
        result = await result_of(process)

    assert [kind for *_, kind in events] == ["taken over", "handed back"]
    assert result["message"] == "a bug"


async def test_a_person_may_bring_the_types_of_a_project(world):
    async with world.running("hasTypes") as process:
        events = await world.game.events("one", 4)
        result = await result_of(process)

    assert [kind for *_, kind in events] == ["taken over", "handed back"] * 2
    assert result["observations"] == [[0, 0]]
    assert "Unknown class [ball]" in result["refused"]["message"]


class Unheard:
    """A Sender to a person who is not there."""

    def send(self, message):
        pass

    def close(self):
        pass


async def take_over(world, name, user_id):
    slot = ActorInitialOutput(actor_name=name)
    await world.game.server.players.take_over("one", slot, user_id, Unheard())


async def test_what_is_refused_has_a_sentence_and_a_code(world):
    await take_over(world, "ball_1", "ada")
    async with world.running("refused") as process:
        result = await result_of(process)
    code = result.pop("code")

    assert (result["taken"]["code"], code) == (6, 6)
    assert "no actor 'ball_1' to take over: it has a player" in result["taken"]["message"]
    assert result["unknown"]["message"] == "trial one has no actor 'ball_9'"
    assert result["unknown"]["code"] == 9
    assert result["nameless"]["message"] == "a person who takes an actor over needs a name"
    assert result["noText"]["message"] == "userId is the name of a person"
    assert result["long"]["code"] == 3
    assert "1 to 64 printable characters" in result["long"]["message"]
    assert result["noFunction"]["message"] == "a person plays by an async function"
    assert "arkmlTrials.PlayersSP/TakeOver cannot be reached" in result["noServer"]["message"]
    assert result["noTrial"]["message"] == "there is no trial 'none'"
    errors = {name: error["isTrialError"] for name, error in result.items()}
    assert [name for name, is_ours in errors.items() if not is_ours] == ["noText", "noFunction"]


async def test_the_guest_is_described(world):
    async with world.running("describes") as process:
        result = await result_of(process)

    assert (result["guest"], result["isRecorded"]) == ("ball.wasm", True)
    assert [one["behavior"] for one in result["classes"]] == ["Ball!"]
    (trial,) = result["trials"]
    assert trial["trialId"] == "one"
    assert [actor["name"] for actor in trial["actors"]] == ["ball_0", "ball_1"]


async def test_the_ticks_of_a_trial_are_seen_to_its_end(world):
    async with world.running("looks") as process:
        assert await line_of(process) == "seen"
        world.game.tick("one")
        assert await line_of(process) == "seen"
        await take_over(world, "ball_1", "ada")
        world.game.fail("one", "the guest trapped")
        result = await result_of(process)
    views = result["views"]

    assert [view["tickId"] for view in views] == [0, 1, 1]
    assert [each["values"] for each in views[1]["observations"]] == [[1, 0], [1, 1]]
    assert [each["continuous"] for each in views[1]["actions"]] == [[0], [0]]
    assert views[1]["rewards"] == [0.5, 0.5]
    assert views[2]["reason"] == "the environment was lost: the guest trapped"
    assert [player.get("name", "") for player in views[2]["players"]] == ["", "ada"]
    assert result["kinds"] == ["STAND_IN", "PERSON"]


async def test_a_watcher_stops_by_a_signal_while_no_tick_comes(world):
    async with world.running("stopsLooking") as process:
        result = await result_of(process)

    assert result == {"count": 1, "before": []}
