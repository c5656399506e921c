"""What a context registers, and streams that trials open to it."""

import asyncio
import re

import pytest
from google.protobuf.wrappers_pb2 import Int32Value, StringValue
from tests.trials_sdk_parts import (
    END,
    HEARTBEAT,
    LAST,
    NORMAL,
    SETTINGS,
    Ends,
    events_of,
    observed,
)

from arkml.trials import Context, EventType, TrialError, TrialState
from arkml.trials.sdk.implementations import RegisteredImplementations
from arkml.trials.wire.actor_pb2 import ActorInitialInput, ActorRunTrialInput
from arkml.trials.wire.common_pb2 import TrialActor, TrialParams
from arkml.trials.wire.environment_pb2 import EnvInitialInput, EnvRunTrialInput
from arkml.trials.wire.hooks_pb2 import PreTrialParams


async def idle(session):
    session.start()
    await events_of(session)


@pytest.fixture
def ends():
    return Ends()


@pytest.fixture
async def parts():
    parts = RegisteredImplementations(SETTINGS)
    yield parts
    await parts.close()
    assert parts.session_count == 0


def introduced(name="ann", actor_class="player", impl_name="", **config):
    init = ActorInitialInput(
        actor_name=name, actor_class=actor_class, impl_name=impl_name, env_name="world", **config
    )
    return ActorRunTrialInput(state=NORMAL, init_input=init)


def world(name="world", impl_name="", **more):
    init = EnvInitialInput(name=name, impl_name=impl_name, **more)
    return EnvRunTrialInput(state=NORMAL, init_input=init)


def exactly(text):
    return f"^{re.escape(text)}$"


def context():
    return Context("me", SETTINGS)


class LocalPlace:
    """A server that takes implementations, and has no trials."""

    def __init__(self):
        self.registered = []

    def register(self, implementations):
        self.registered.append(implementations)


def test_the_name_of_an_actor_implementation_is_unique():
    made = context()
    made.register_actor(idle, "bot", ["player"])

    with pytest.raises(
        TrialError, match=exactly("The actor implementation name must be unique: [bot]")
    ):
        made.register_actor(idle, "bot", ["teacher"])


def test_the_name_of_an_environment_implementation_is_unique():
    made = context()
    made.register_environment(idle)

    with pytest.raises(
        TrialError,
        match=exactly("The environment implementation name must be unique: [default]"),
    ):
        made.register_environment(idle)


def test_there_is_one_pre_trial_hook():
    made = context()
    made.register_pre_trial_hook(idle)

    with pytest.raises(
        TrialError, match=exactly("Only one pre-trial hook service can be registered")
    ):
        made.register_pre_trial_hook(idle)


def test_classes_are_a_list():
    with pytest.raises(TrialError, match=r"\['player'\]"):
        context().register_actor(idle, "bot", "player")


async def test_a_context_serves_something():
    with pytest.raises(TrialError, match=exactly("Nothing registered to serve!")):
        await context().serve_all_registered()


async def test_what_is_served_is_served_once_and_completed_before():
    made, place = context(), LocalPlace()
    made.register_actor(idle, "bot")
    await made.serve_all_registered(place)

    assert len(place.registered) == 1
    with pytest.raises(TrialError, match=exactly("Cannot serve the same components twice")):
        await made.serve_all_registered(place)
    with pytest.raises(
        TrialError, match=exactly("Cannot register an actor after the server is started")
    ):
        made.register_actor(idle, "other")
    with pytest.raises(
        TrialError, match=exactly("Cannot register an environment after the server is started")
    ):
        made.register_environment(idle)
    with pytest.raises(
        TrialError,
        match=exactly("Cannot register a pre-trial hook after the server is started"),
    ):
        made.register_pre_trial_hook(idle)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ({}, "Actor name or actor class must be specified to join a trial"),
        (
            {"actor_name": "ann", "actor_class": "player"},
            "Only actor_name or actor_class must be specified, not both.",
        ),
        (
            {"impl_name": "any"},
            "Unable to determine possible actor to join trial: "
            "impl_name [any] does not have any registered actor class",
        ),
        (
            {"impl_name": "bot"},
            "there is no actor implementation 'bot'; known: any",
        ),
    ],
)
async def test_an_actor_joins_by_a_name_or_by_a_class(names, text):
    made = context()
    made.register_actor(idle, "any")

    with pytest.raises(TrialError, match=exactly(text)):
        await made.join_trial("t", "grpc://127.0.0.1:1", **names)


@pytest.mark.parametrize(
    "endpoint", ["cogment://client", "http://host:1", "cogment://discover", "grpc://host", ""]
)
def test_a_server_is_at_a_host_and_a_port(endpoint):
    with pytest.raises(TrialError, match="endpoint"):
        context().get_controller(endpoint)


@pytest.mark.parametrize(
    ("registered", "impl_name", "expected"),
    [
        ({"bot": ["player"]}, "bot", "bot"),
        ({"bot": []}, "bot", "bot"),
        ({"bot": ["teacher"], "pro": ["player"]}, "", "pro"),
        ({"all": [], "pro": ["teacher", "player"]}, "", "pro"),
        ({"all": [], "pro": ["teacher"]}, "unheard", "all"),
    ],
)
async def test_an_implementation_fits_the_actor(parts, ends, registered, impl_name, expected):
    chosen = []

    def remembering(name):
        async def run(session):
            chosen.append((name, session.impl_name))
            await idle(session)

        return run

    for name, classes in registered.items():
        parts.add_actor(remembering(name), name, classes)
    parts.open_actor("", "t", ends).receive(introduced(impl_name=impl_name))
    await ends.until(lambda: ends.sent)

    assert chosen == [(expected, expected)]
    assert parts.session_count == 1


@pytest.mark.parametrize(("impl_name", "warnings"), [("", 0), ("bot", 0), ("bott", 1)])
async def test_an_implementation_that_is_not_registered_is_warned_of(
    parts, ends, caplog, impl_name, warnings
):
    parts.add_actor(idle, "bot", ["player"])
    parts.open_actor("", "t", ends).receive(introduced(impl_name=impl_name))
    await ends.until(lambda: ends.sent)

    text = (
        "Trial [t] - impl [bott] is not registered: impl [bot] arbitrarily chosen for actor [ann]"
    )
    assert caplog.messages == [text] * warnings


async def test_the_caller_may_name_the_implementation(parts, ends):
    parts.add_actor(idle, "bot", ["player"])
    parts.add_actor(idle, "pro", ["teacher"])
    parts.open_actor("pro", "t", ends).receive(introduced(impl_name="bot"))

    assert "actor implementation [pro]" in ends.sent[0].details


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (introduced(name=""), "Trial [t] - Empty actor name"),
        (introduced(actor_class=""), "Trial [t] - Empty actor class for actor [ann]"),
        (
            introduced(actor_class="teacher", impl_name="bot"),
            "Trial [t] - actor [ann] class [teacher] is not compatible with actor"
            " implementation [bot]",
        ),
        (
            introduced(actor_class="teacher"),
            "Trial [t] - actor [ann] class [teacher] is not compatible with with any"
            " registered actor",
        ),
        (
            introduced(actor_class="animal", impl_name="zoo"),
            "Trial [t] - Unknown class [animal] for service actor [ann]",
        ),
        (
            introduced(actor_class="teacher", impl_name="school", config={"content": b""}),
            "Trial [t] - Actor [ann] received config data of unknown type (was it defined in"
            " cogment.yaml?)",
        ),
        (introduced(config={"content": b"\xff"}), "Error parsing message"),
        (observed(0), "received state 1 with observation before init_input"),
        (ActorRunTrialInput(state=NORMAL), "received state 1 with no data before init_input"),
    ],
)
async def test_an_actor_that_cannot_start_ends_its_stream_with_the_reason(
    parts, ends, message, text
):
    parts.add_actor(idle, "bot", ["player"])
    parts.add_actor(idle, "zoo", ["animal"])
    parts.add_actor(idle, "school", ["teacher", "animal"])
    if message.init_input.actor_class == "teacher" and not message.init_input.impl_name:
        parts = RegisteredImplementations(SETTINGS)
        parts.add_actor(idle, "bot", ["player"])
    stream = parts.open_actor("", "t", ends)
    stream.receive(message)
    stream.receive(introduced())

    assert ends.kinds() == ["END"]
    assert ends.sent[0].details.startswith(text)
    assert ends.is_closed
    assert parts.session_count == 0


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (world(name=""), "Trial [t] - Empty environment name"),
        (world(impl_name="moon"), "Trial [t] - Unknown impl [moon] for environment [world]"),
        (
            world(actors_in_trial=[TrialActor(name="cat", actor_class="animal")]),
            "class [animal] of actor [cat] cannot be found.",
        ),
    ],
)
async def test_an_environment_that_cannot_start_ends_its_stream_with_the_reason(
    parts, ends, message, text
):
    parts.add_environment(idle, "earth")
    parts.open_environment("", "t", ends).receive(message)

    assert ends.kinds() == ["END"]
    assert ends.sent[0].details == text
    assert ends.is_closed


async def test_without_a_name_the_first_environment_is_taken(parts, ends):
    parts.add_environment(idle, "earth")
    parts.add_environment(idle, "moon")
    parts.open_environment("", "t", ends).receive(world())
    await ends.until(lambda: ends.sent)

    assert ends.kinds() == ["init_output"]


async def test_an_actor_takes_part_once_in_a_trial(parts, ends):
    parts.add_actor(idle, "bot", [])
    parts.add_environment(idle, "earth")
    parts.open_actor("", "t", Ends()).receive(introduced())
    parts.open_actor("", "other", Ends()).receive(introduced())
    parts.open_environment("", "t", Ends()).receive(world())
    parts.open_actor("", "t", ends).receive(introduced())
    parts.open_environment("", "t", ends).receive(world())

    assert parts.session_count == 3
    assert [message.details for message in ends.sent] == [
        "Trial [t] - Service actor [ann] already exists"
    ]


async def test_before_the_introduction_heartbeats_and_the_end_are_answered(parts, ends):
    parts.add_actor(idle, "bot", [])
    stream = parts.open_actor("", "t", ends)
    stream.receive(ActorRunTrialInput(state=HEARTBEAT))
    stream.receive(ActorRunTrialInput(state=LAST))
    stream.receive(ActorRunTrialInput(state=END, details="too late"))
    stream.lose("closed")

    assert ends.kinds() == ["HEARTBEAT", "LAST_ACK"]
    assert ends.is_closed


async def test_a_session_plays_its_trial_to_the_end(parts, ends):
    types = []

    async def run(session):
        session.start()
        types.extend([event.type for event in await events_of(session)])

    parts.add_actor(run, "bot", ["player"])
    stream = parts.open_actor("", "t", ends)
    stream.receive(introduced())
    await ends.until(lambda: ends.sent)
    for message in (
        observed(0),
        ActorRunTrialInput(state=LAST),
        observed(1),
        ActorRunTrialInput(state=END),
    ):
        stream.receive(message)
    await ends.until(lambda: ends.is_closed)

    assert types == [EventType.ACTIVE, EventType.ENDING, EventType.FINAL]
    assert ends.kinds() == ["init_output", "LAST_ACK"]


async def test_an_implementation_is_not_begun_after_the_end(parts, ends, caplog):
    begun = []

    async def run(session):
        begun.append(session)

    parts.add_actor(run, "bot", ["player"])
    stream = parts.open_actor("", "t", ends)
    stream.receive(introduced())
    stream.receive(ActorRunTrialInput(state=END, details="enough"))
    await ends.until(lambda: ends.is_closed)

    assert (begun, ends.sent) == ([], [])
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_an_exception_is_logged_and_told_to_the_trial(parts, ends, caplog):
    async def run(session):
        session.start()
        raise ValueError("the board is broken")

    parts.add_actor(run, "bot", ["player"])
    parts.open_actor("", "t", ends).receive(introduced())
    await ends.until(lambda: ends.is_closed)

    assert ends.kinds() == ["init_output", "END"]
    assert ends.sent[1].details == "the implementation failed: ValueError: the board is broken"
    assert "Traceback" in caplog.text


async def test_an_implementation_that_returns_early_leaves_the_trial(parts, ends):
    async def run(session):
        session.start()

    parts.add_environment(run, "earth")
    parts.open_environment("", "t", ends).receive(world())
    await ends.until(lambda: ends.is_closed)

    assert ends.kinds() == ["init_output", "END"]
    assert "returned before the end" in ends.sent[1].details


async def test_closing_cancels_the_sessions_and_tells_their_trials(parts, ends):
    async def run(session):
        session.start()
        await asyncio.Event().wait()

    parts.add_actor(run, "bot", [])
    parts.open_actor("", "t", ends).receive(introduced())
    await ends.until(lambda: ends.sent)
    await parts.close()

    assert ends.kinds() == ["init_output", "END"]
    assert "was cancelled" in ends.sent[1].details


async def test_nothing_starts_after_closing(parts, ends):
    parts.add_actor(idle, "bot", [])
    await parts.close()
    parts.open_actor("", "t", ends).receive(introduced())

    assert ends.kinds() == ["END"]
    assert "context closed" in ends.sent[0].details


async def test_a_stream_that_is_lost_ends_its_session(parts, ends):
    parts.add_actor(idle, "bot", [])
    stream = parts.open_actor("", "t", ends)
    stream.receive(introduced())
    await ends.until(lambda: ends.sent)
    stream.lose("gone")
    await ends.until(lambda: ends.is_closed)

    assert ends.kinds() == ["init_output"]


async def test_a_context_without_settings_plays_no_actors(ends):
    parts = RegisteredImplementations(None)
    parts.add_actor(idle, "bot", [])
    parts.open_actor("", "t", ends).receive(introduced())

    assert "no cog_settings" in ends.sent[0].details


async def test_a_hook_changes_the_parameters_and_not_those_it_was_given(parts):
    about = []

    async def hook(session):
        about.append((session.get_trial_id(), session.get_user_id()))
        session.trial_parameters.max_steps = session.trial_parameters.config.value

    parts.set_hook(hook)
    given = PreTrialParams(
        params=TrialParams(trial_config={"content": Int32Value(value=8).SerializeToString()})
    )
    made = await parts.pre_trial(given, "t", "me")

    assert about == [("t", "me")]
    assert made.params.max_steps == 8
    assert given.params.max_steps == 0


@pytest.mark.parametrize("fault", ["raises", "spoils"])
async def test_a_hook_that_fails_says_why(parts, fault):
    async def hook(session):
        if fault == "raises":
            raise ValueError("no seats")
        session.trial_parameters = StringValue()

    parts.set_hook(hook)
    with pytest.raises(TrialError, match="the pre-trial hook failed: "):
        await parts.pre_trial(PreTrialParams(), "t", "me")


async def test_without_a_hook_there_is_nothing_to_call(parts):
    with pytest.raises(TrialError, match="No implementation registered"):
        await parts.pre_trial(PreTrialParams(), "t", "me")


def test_the_states_of_trials_are_ordered():
    states = [
        TrialState.UNKNOWN,
        TrialState.INITIALIZING,
        TrialState.PENDING,
        TrialState.RUNNING,
        TrialState.TERMINATING,
        TrialState.ENDED,
    ]

    assert states == list(TrialState) == sorted(TrialState)
