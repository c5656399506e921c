"""The JavaScript SDK plays trials over a real web port."""

import asyncio
import contextlib
import importlib
import json
import sys
from pathlib import Path

import pytest
from tests.node import running_module
from tests.waiting import PATIENCE

from arkml.trials import (
    ActorParameters,
    Context,
    EventType,
    Server,
    TrialParameters,
)
from arkml.trials.generate import generate
from arkml.trials.server.web.port import WebPort
from arkml.trials.server.web.web_options import WebOptions

TESTS = Path(__file__).parents[1]
PROGRAM = Path(__file__).with_name("sdk_player.mjs")
TICKS = 4


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """The folder with the settings of the project; its Python modules can be imported."""
    folder = tmp_path_factory.mktemp("project")
    generate(TESTS / "trials_project" / "cogment.yaml", python=folder, javascript=folder)
    (folder / "package.json").write_text('{"type": "module"}')
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))
    for name in set(sys.modules) - before:
        del sys.modules[name]


class World:
    """A server with a web port, whose environment counts how far its actors have gone."""

    def __init__(self, folder):
        self.folder = folder
        self.settings = importlib.import_module("cog_settings")
        self.messages = importlib.import_module("grid_pb2")
        self.parts = importlib.import_module("parts.common_types_pb2")
        self.received = []
        self.actions = []
        self.configs = []

    async def environment(self, session):
        everything, move = self.messages.Everything, self.messages.Move
        gone = 0
        session.start([("*", everything(an_int32=0))])
        async for event in session.all_events():
            self.received += [(each.sender_name, each.payload.right) for each in event.messages]
            if not event.actions:
                continue
            self.actions += [each.action.right for each in event.actions]
            gone += sum(each.action.right for each in event.actions)
            tick = session.get_tick_id()
            if tick == 1:
                session.send_message(move(right=9), to=["*"])
                session.add_reward(
                    value=2.0, confidence=1.0, to=["*"], user_data=self.messages.Level(seed=3)
                )
            if event.type == EventType.ENDING or tick + 1 < TICKS:
                session.produce_observations([("*", everything(an_int32=gone))])
            else:
                session.end([("*", everything(an_int32=gone))])

    async def hook(self, session):
        parameters = session.trial_parameters
        if parameters.config is not None:
            self.configs.append(parameters.config.seed)
        parameters.environment_endpoint = "local://"
        parameters.environment_name = "world"
        parameters.actors = [self.ada()]

    def ada(self):
        return ActorParameters(
            self.settings, "player", name="ada", endpoint="cogment://client",
            config=self.parts.Shared(x=1.5, y=-2.0),
        )  # fmt: skip

    async def start(self, trial_id):
        parameters = TrialParameters(
            self.settings, environment_endpoint="local://", environment_name="world",
            actors=[self.ada()],
        )  # fmt: skip
        return await self.controller.start_trial(
            trial_id_requested=trial_id, trial_params=parameters
        )

    @contextlib.asynccontextmanager
    async def running(self, scenario, **given):
        """A process that plays a scenario."""
        given = {
            "cogment": (self.folder / "cogment" / "cogment.js").as_uri(),
            "settings": (self.folder / "CogSettings.js").as_uri(),
            "messages": (self.folder / "grid_pb.js").as_uri(),
            "endpoint": self.port.endpoint(),
            "scenario": scenario,
            **given,
        }
        async with running_module(PROGRAM, given) as process:
            yield process

    async def played(self, scenario, **given):
        """The JSON that a process prints of a scenario."""
        async with self.running(scenario, **given) as process:
            return await result_of(process)


async def result_of(process):
    out, err = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert process.returncode == 0, err.decode()
    return json.loads(out)


@pytest.fixture
async def world(project):
    made = World(project)
    options = importlib.import_module("arkml.trials").TrialsOptions(hooks=("local://",))
    async with Server(options) as server, Context("test", made.settings) as context:
        context.register_environment(made.environment, "default")
        context.register_pre_trial_hook(made.hook)
        await context.serve_all_registered(server)
        made.controller = context.get_controller(server)
        made.port = WebPort(server, WebOptions())
        await made.port.open()
        yield made
        await made.port.close()


async def test_a_trial_is_started_watched_and_played_to_its_end(world):
    result = await world.played("whole", trialId="first")
    events = result["events"]
    observed = [event for event in events if "observation" in event]

    assert result["id"] == "first"
    assert result["again"] == ""
    assert world.configs == [7]
    assert result["seen"] == {
        "id": "first", "name": "ada", "className": "player", "envName": "world",
        "config": [1.5, -2.0], "tick": -1, "over": False, "lastTick": TICKS, "overAtEnd": True,
    }  # fmt: skip
    assert [event["observation"] for event in observed] == [0, 1, 2, 3, 4]
    assert [event["type"] for event in observed] == ["ACTIVE"] * 4 + ["ENDING"]
    assert events[-1] == {"type": "FINAL", "rewards": [], "messages": []}
    assert world.received == [("ada", 41)]
    assert [message for event in events for message in event["messages"]] == [9]
    rewards = [reward for event in events for reward in event["rewards"]]
    assert {
        tuple(source) for reward in rewards for source in reward["sources"]
    } == {("ada", 4, 0.5), ("world", 2, 1)}  # fmt: skip
    assert {kind for reward in rewards for kind in reward["data"]} == {
        "type.googleapis.com/grid.world.Level"
    }
    assert [state for state, _ in result["states"]][-3:] == ["RUNNING", "TERMINATING", "ENDED"]
    assert {tick for _, tick in result["states"]} == {None}
    assert result["info"] == {
        "trialId": "first", "state": 5, "envName": "world", "tickId": TICKS, "duration": True,
    }  # fmt: skip
    assert result["isTrialInfo"]
    assert result["all"] == ["first"]
    assert result["actors"] == [{"name": "ada", "actorClass": "player"}]
    assert {"orchestrator", "cogment-api", "grpc"} <= set(result["versions"])
    assert result["none"]["message"]


async def test_a_session_that_ends_its_sending_itself_may_send_after_the_last_observation(world):
    result = await world.played("manual", trialId=await world.start("second"))

    assert result["errors"]["twice"]["message"] == "Cannot start [ada] more than once."
    assert result["errors"]["early"] == {
        "name": "TrialError",
        "message": "Cannot stop sending before trial is ready to end",
    }
    assert world.actions == [0, 0, 0, 0]
    assert ("ada", 6) not in world.received
    assert result["events"][-1]["type"] == "FINAL"
    assert any("Cannot send after acknowledging ending" in text for text in result["warnings"])


async def test_a_session_that_ends_by_itself_does_not_take_sending_done(world):
    result = await world.played("automatic", trialId=await world.start("third"))

    assert result["error"]["message"] == ("Cannot manually end sending as it is set to automatic")


async def test_a_soft_end_is_seen_as_ending_and_final(world):
    result = await world.played("soft", trialId=await world.start("fourth"))

    assert result["types"][0] == "ENDING"
    assert result["types"][-1] == "FINAL"


async def test_a_hard_end_has_no_final_event(world):
    result = await world.played("hard", trialId=await world.start("fifth"))

    assert "FINAL" not in result["types"]
    assert "ENDING" not in result["types"]
    assert any("the trial was cut off" in text for text in result["warnings"])


async def test_a_connection_that_drops_ends_the_loop_of_events(world):
    trial = await world.start("sixth")
    async with world.running("dropped", trialId=trial) as process:
        await asyncio.wait_for(process.stderr.readline(), PATIENCE)
        await world.port.close()
        result = await result_of(process)

    assert result["events"]
    assert result["over"]


async def test_a_loop_that_is_sent_false_ends_and_its_actor_leaves_with_a_reason(world):
    trial = await world.start("seventh")
    result = await world.played("quits", trialId=trial)
    async for info in world.controller.watch_trials():
        if info.state.name == "ENDED":
            break

    assert result["types"] == ["ACTIVE", True]
    assert any("the implementation of the actor returned" in text for text in result["warnings"])


async def test_what_cannot_be_done_is_refused_with_a_sentence(world):
    trial = await world.start("eighth")
    result = await world.played("refused", trialId=trial)
    messages = {name: error["message"] for name, error in result.items() if name != "isTrialError"}

    assert "no-such-trial" in messages["unknownTrial"]
    assert "bob" in messages["unknownActor"]
    assert messages["wrongClass"].endswith("is not compatible with actor implementation [ada]")
    assert messages["noActors"] == "no actor is registered to join with"
    assert "127.0.0.1:1/cogmentAPI.ClientActorSP/RunTrial cannot be reached" in messages["noServer"]
    assert "has the form http://host:port, not grpc://localhost:9000" in messages["noEndpoint"]
    assert "cannot be reached" in messages["noCall"]
    assert messages["noIds"] == "terminateTrial takes at least one trial id"
    assert messages["comma"] == 'trial-id cannot be "a,b"'
    assert messages["order"] == "a Context takes the user's id, and then cogSettings"
    assert messages["twice"] == "The actor implementation name must be unique: [ada]"
    assert result["isTrialError"]
