"""People take actors over, and look, with the Python SDK: in one process, and over gRPC."""

import asyncio
from contextlib import suppress
from types import SimpleNamespace

import grpc
import pytest
from tests.driven_trial import actor, trial_params
from tests.generated_stubs import players_pb2_grpc
from tests.integration.hand_driven import STANDING, hosting_by_hand, observation
from tests.waiting import PATIENCE

from arkml.trials import (
    ActorClass,
    ActorClassList,
    ActorTaken,
    Context,
    EventType,
    Server,
    TrialError,
)
from arkml.trials.user_ids import encoded_user_id, user_id_in
from arkml.trials.wire.actor_pb2 import ActorInitialOutput, ActorRunTrialInput, ActorRunTrialOutput
from arkml.trials.wire.common_pb2 import CommunicationState, TrialState
from arkml.trials.wire.guest_pb2 import Action, Observation
from arkml.trials.wire.lifecycle_pb2 import TrialStartRequest
from arkml.trials.wire.players_pb2 import LookRequest, PlayerKind

NAME = "Jörg, 100%"
SETTINGS = SimpleNamespace(
    actor_classes=ActorClassList(ActorClass("ball", None, Action, Observation)),
    trial=SimpleNamespace(config_type=None),
    environment=SimpleNamespace(config_type=None),
)
LOST = "the environment was lost: the guest trapped"
QUARTER = Action(continuous=[0.25])


async def at_a_port(game):
    """The endpoint of a port of gRPC."""
    port, _ = await game.server.listen("127.0.0.1", 0)
    return f"grpc://127.0.0.1:{port}"


async def in_process(game):
    """The server itself, in the place of an endpoint."""
    return game.server


@pytest.fixture
async def game():
    async with hosting_by_hand() as made:
        await made.start("one")
        yield made


@pytest.fixture(params=[in_process, at_a_port], ids=["in process", "over grpc"])
async def place(request, game):
    return await request.param(game)


@pytest.fixture
async def context():
    async with Context(NAME, SETTINGS) as made:
        yield made


@pytest.fixture
async def stub(game):
    """The raw service over gRPC."""
    endpoint = await at_a_port(game)
    async with grpc.aio.insecure_channel(endpoint.removeprefix("grpc://")) as channel:
        yield players_pb2_grpc.PlayersSPStub(channel)


class Part:
    """An implementation that acts until it has seen `ticks` observations."""

    def __init__(self, ticks=0, ending=None):
        self.ticks = ticks
        self.ending = ending
        self.values = []
        self.types = []

    async def __call__(self, session):
        session.start()
        self.session = session
        async for event in session.all_events():
            self.types.append(event.type)
            if event.observation is None:
                continue
            self.values.append(list(event.observation.observation.values))
            if len(self.values) == self.ticks:
                if self.ending is None:
                    return
                self.ending(session)
            elif event.type == EventType.ACTIVE:
                session.do_action(QUARTER)


async def test_a_person_plays_and_hands_back_by_returning(game, place, context, caplog):
    part = Part(ticks=3)
    playing = asyncio.create_task(context.take_over("one", place, "ball_1", part))
    await game.events("one", 1)
    game.tick("one")
    applied = await game.applied("one", 1)
    game.tick("one")
    events = await game.events("one", 2)
    await playing
    after = await game.applied("one", 2)

    assert events == [("ball_1", NAME, "taken over"), ("ball_1", NAME, "handed back")]
    assert applied == [("", STANDING), (NAME, QUARTER.SerializeToString())]
    assert after == [("", STANDING), ("", STANDING)]
    assert part.values == [[0, 1], [1, 1], [2, 1]]
    assert (part.session.name, part.session.actor_class) == ("ball_1", "ball")
    assert part.session.env_name == "env"
    assert not [one for one in caplog.records if one.levelname == "WARNING"]


async def test_a_person_hands_back_in_the_midst_of_its_loop_of_events(game, place, context):
    part = Part(ticks=1, ending=lambda session: session.hand_back())
    await asyncio.wait_for(context.take_over("one", place, "ball_0", part), PATIENCE)
    events = await game.events("one", 2)

    assert [kind for *_, kind in events] == ["taken over", "handed back"]
    assert part.session.is_trial_over()
    assert part.types == [EventType.ACTIVE]


async def test_a_person_sees_the_end_of_the_trial(game, place, context):
    part = Part()
    playing = asyncio.create_task(context.take_over("one", place, "ball_0", part))
    await game.events("one", 1)
    await game.end("one")
    await asyncio.wait_for(playing, PATIENCE)

    assert part.values == [[0, 0], [1, 0], [2, 0]]
    assert part.types[-1] == EventType.FINAL


async def test_a_program_that_fails_hands_back_and_its_error_is_raised(game, place, context):
    def fail(_):
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        await context.take_over("one", place, "ball_0", Part(ticks=1, ending=fail))
    events = await game.events("one", 2)

    assert [kind for *_, kind in events] == ["taken over", "handed back"]


async def test_an_actor_has_one_person_and_may_be_taken_over_again(game, place, context):
    first = asyncio.create_task(context.take_over("one", place, "ball_0", Part()))
    await game.events("one", 1)
    with pytest.raises(ActorTaken, match=r"no actor 'ball_0' to take over: it has a player"):
        await context.take_over("one", place, "ball_0", Part())
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    events = await game.events("one", 2)
    again = Part(ticks=1)
    await context.take_over("one", place, "ball_0", again)

    assert events[1] == ("ball_0", NAME, "handed back")
    assert again.values == [[0, 0]]


async def test_what_is_refused_has_its_sentence(place, context):
    with pytest.raises(TrialError, match=r"^there is no trial 'none'$"):
        await context.take_over("none", place, "ball_0", Part())
    with pytest.raises(TrialError, match=r"^trial one has no actor 'ball_9'$"):
        await context.take_over("one", place, "ball_9", Part())
    with pytest.raises(TrialError, match=r"^there is no trial 'none'$"):
        await anext(context.get_controller(place).look("none"))


async def test_a_class_that_is_not_in_the_settings_is_refused_and_handed_back(game, place):
    settings = SimpleNamespace(actor_classes=ActorClassList())
    async with Context("ann", settings) as context:
        with pytest.raises(TrialError, match=r"Unknown class \[ball\]"):
            await context.take_over("one", place, "ball_0", Part())
    events = await game.events("one", 2)

    assert [kind for *_, kind in events] == ["taken over", "handed back"]


async def test_the_ticks_of_a_trial_are_seen_to_its_end(game, place, context):
    views = context.get_controller(place).look("one")
    seen = [await anext(views)]
    game.tick("one")
    seen.append(await anext(views))
    game.fail("one", "the guest trapped")
    seen += [view async for view in views]

    assert [view.tick_id for view in seen] == [0, 1, 1]
    assert list(seen[1].observations.observations) == [observation(1, 0), observation(1, 1)]
    assert [player.kind for player in seen[1].players] == [PlayerKind.STAND_IN] * 2
    assert (seen[-1].state, seen[-1].reason) == (TrialState.ENDED, LOST)


async def test_a_look_ends_where_its_reader_wants(game, place, context):
    views = context.get_controller(place).look("one")
    await anext(views)
    with pytest.raises(StopAsyncIteration):
        await views.asend(False)
    async with asyncio.timeout(PATIENCE):
        while game.lookers("one"):
            await asyncio.sleep(0)

    assert game.lookers("one") == 0


async def test_the_guest_is_described(place, context):
    description = await context.get_controller(place).describe()

    assert (description.guest, description.is_recorded) == ("ball.wasm", True)
    assert [trial.trial_id for trial in description.trials] == ["one"]


NORMAL = CommunicationState.NORMAL
BALL = ActorRunTrialOutput(state=NORMAL, init_output=ActorInitialOutput(actor_name="ball_0"))
ANN = (("trial-id", "one"), ("user-id", "ann"))


async def refusal(call):
    """The code and the details of a call that is refused."""
    async with asyncio.timeout(PATIENCE):
        return (await call.code()).name, await call.details()


async def test_a_second_person_gets_the_status_already_exists(stub):
    first = stub.TakeOver(metadata=ANN)
    await first.write(BALL)
    init = await first.read()
    second = stub.TakeOver(metadata=(("trial-id", "one"), ("user-id", "bob")))
    await second.write(BALL)
    refused = await refusal(second)
    first.cancel()

    assert isinstance(init, ActorRunTrialInput)
    assert refused[0] == "ALREADY_EXISTS"
    assert "no actor 'ball_0' to take over" in refused[1]


@pytest.mark.parametrize(
    ("metadata", "sentence"),
    [
        (ANN[:1], "a call has one user-id, the name of a person, not 0"),
        ((*ANN, ("user-id", "bob")), "a call has one user-id, the name of a person, not 2"),
        ((ANN[0], ("user-id", "%E2%80%AE")), "1 to 64 printable characters"),
        (ANN[1:], "an actor joins one trial, not 0 (metadata trial-id)"),
    ],
)
async def test_a_call_that_names_no_person_or_no_trial_is_refused(stub, metadata, sentence):
    call = stub.TakeOver(metadata=metadata)
    with suppress(grpc.aio.AioRpcError):  # it may be refused before its first message
        await call.write(BALL)
    code, details = await refusal(call)

    assert code == "FAILED_PRECONDITION"
    assert sentence in details


async def test_the_first_message_of_a_person_names_the_actor(stub):
    call = stub.TakeOver(metadata=ANN)
    await call.write(ActorRunTrialOutput(state=NORMAL))
    refused = await refusal(call)

    assert refused == (
        "FAILED_PRECONDITION", "the first message of an actor is to be its init_output"
    )  # fmt: skip


async def test_a_call_that_is_cut_off_hands_back(game, stub):
    call = stub.TakeOver(metadata=ANN)
    await call.write(BALL)
    await call.read()
    call.cancel()
    events = await game.events("one", 2)

    assert events == [("ball_0", "ann", "taken over"), ("ball_0", "ann", "handed back")]


async def test_the_end_of_the_half_of_a_person_hands_back_in_order(game, stub):
    call = stub.TakeOver(metadata=ANN)
    await call.write(BALL)
    await call.done_writing()
    async with asyncio.timeout(PATIENCE):
        while await call.read() is not grpc.aio.EOF:
            pass
    events = await game.events("one", 2)

    assert await call.code() is grpc.StatusCode.OK
    assert events[1] == ("ball_0", "ann", "handed back")


@pytest.mark.parametrize("trials", [(), ("one", "two")])
async def test_a_look_is_at_one_trial(stub, trials):
    call = stub.Look(LookRequest(), metadata=tuple(("trial-id", one) for one in trials))
    refused = await refusal(call)

    assert refused == (
        "FAILED_PRECONDITION", f"a reader sees one trial, not {len(trials)} (metadata trial-id)"
    )  # fmt: skip


@pytest.mark.parametrize("name", ["ann", NAME, "世界 \U0001f600", "a b", "%41", "~-_.!*'()"])
def test_names_are_carried_in_ascii_and_read_again(name):
    carried = encoded_user_id(name)

    assert carried.isascii()
    assert "," not in carried
    assert user_id_in([carried]) == name


@pytest.mark.parametrize("way", [in_process, at_a_port], ids=["in process", "over grpc"])
async def test_a_server_that_hosts_no_trials_says_so(way, context):
    async with Server() as server:
        place = await way(SimpleNamespace(server=server))
        with pytest.raises(TrialError, match="this server hosts no trials"):
            await context.get_controller(place).describe()


async def test_an_actor_of_a_trial_that_is_not_hosted_is_not_taken_over(game, context):
    params = trial_params([actor("ada")])
    request = TrialStartRequest(trial_id_requested="plain", params=params)
    await game.server.trials.start(request)

    with pytest.raises(TrialError, match="trial plain is not hosted"):
        await context.take_over("plain", game.server, "ada", Part())
    with pytest.raises(TrialError, match="trial plain is not hosted"):
        await anext(context.get_controller(game.server).look("plain"))
