"""The Python SDK with a real server: in the same process, and over gRPC on loopback."""

import asyncio
import contextlib

import grpc
import pytest
from google.protobuf.wrappers_pb2 import Int32Value, Int64Value, StringValue
from tests.generated_stubs import actor_pb2_grpc
from tests.trials_sdk_parts import (
    END,
    HEARTBEAT,
    NORMAL,
    SETTINGS,
    Ends,
    events_of,
    observed,
    parameters,
)
from tests.waiting import tasks_left

from arkml.trials import (
    ActorInfo,
    ActorStatus,
    Context,
    Controller,
    Endpoint,
    EventType,
    ServedEndpoint,
    Server,
    TrialError,
    TrialParameters,
    TrialsOptions,
    TrialState,
    grpc_streams,
)
from arkml.trials.wire.actor_pb2 import (
    ActorInitialInput,
    ActorRunTrialInput,
    ActorRunTrialOutput,
)
from arkml.trials.wire.common_pb2 import StatusRequest, VersionRequest

CLIENT = "cogment://client"


class Play:
    """A server and a context, with what its actors and its environment lived through."""

    def __init__(self, way, server, context):
        self.way = way
        self.server = server
        self.context = context
        self.place = server
        self.endpoint = "local://"
        self.events = {}
        self._tasks = []

    @property
    def controller(self):
        return self.context.get_controller(self.place)

    async def serve(self):
        """Serve what is registered, where trials find it at `endpoint`."""
        if self.way == "in process":
            await self.context.serve_all_registered(self.server)
            return
        port, _ = await self.server.listen("127.0.0.1", 0)
        self.place = Endpoint(f"grpc://127.0.0.1:{port}")
        self._tasks.append(asyncio.create_task(self.context.serve_all_registered()))
        await asyncio.sleep(0)
        self.endpoint = f"grpc://127.0.0.1:{self.context.served_port}"

    async def start(self, actors, **attributes):
        """Start a trial; `actors` has the implementation of each name, None for one that joins."""
        listed = {
            name: (CLIENT, "") if implementation is None else (self.endpoint, implementation)
            for name, implementation in actors.items()
        }
        params = parameters(self.endpoint, listed, **attributes)
        return await self.controller.start_trial(trial_params=params)

    async def ended(self, trial_id):
        """Wait for the end of a trial."""
        async for info in self.controller.watch_trials([TrialState.ENDED]):
            if info.trial_id == trial_id:
                return

    def keep(self, session, event):
        self.events.setdefault(session.name, []).append(event)

    async def close(self):
        await self.context.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@pytest.fixture(params=["in process", "gRPC"])
async def play(request):
    before = asyncio.all_tasks()
    async with Server() as server:
        played = Play(request.param, server, Context("me", SETTINGS))
        yield played
        await played.close()
    assert await tasks_left(before) == set()


def adding(play):
    """An environment whose observations are the sums of the actions."""

    async def run(session):
        session.start([("*", StringValue(value="begin"))])
        async for event in session.all_events():
            play.keep(session, event)
            if event.actions:
                total = sum(action.action.value for action in event.actions if action.action)
                session.produce_observations([("*", StringValue(value=str(total)))])

    return run


def counting(play):
    """An actor whose action is the number of the tick."""

    async def run(session):
        session.start()
        async for event in session.event_loop():
            play.keep(session, event)
            if event.observation and event.type is EventType.ACTIVE:
                session.do_action(Int64Value(value=event.observation.tick_id))

    return run


def types(events):
    return [event.type for event in events]


def seen(events):
    return [event.observation.observation.value for event in events if event.observation]


async def test_a_trial_of_called_actors_plays_to_its_last_step(play):
    play.context.register_actor(counting(play), "counts", ["player"])
    play.context.register_environment(adding(play))
    await play.serve()
    trial_id = await play.start({"ann": "counts", "bob": "counts"}, max_steps=3)
    await play.ended(trial_id)
    await play.context.close()

    for name in ("ann", "bob"):
        assert seen(play.events[name]) == ["begin", "0", "2", "4", "6"]
        assert types(play.events[name])[-2:] == [EventType.ENDING, EventType.FINAL]
    assert types(play.events["env"]) == [EventType.ACTIVE] * 3 + [
        EventType.ENDING,
        EventType.FINAL,
    ]


async def test_actors_join_by_name_and_by_class(play):
    play.context.register_actor(counting(play), "counts", ["player"])
    play.context.register_environment(adding(play))
    await play.serve()
    trial_id = await play.start({"ann": None, "bob": None, "cat": None}, max_steps=1)
    await asyncio.gather(
        play.context.join_trial(trial_id, play.place, actor_name="bob"),
        play.context.join_trial(trial_id, play.place, actor_class="player"),
        play.context.join_trial(trial_id, play.place, "counts"),
    )

    assert {name: seen(play.events[name]) for name in ("ann", "bob", "cat")} == {
        name: ["begin", "0", "3"] for name in ("ann", "bob", "cat")
    }


async def test_a_controller_knows_the_trials(play):
    play.context.register_actor(counting(play), "counts", ["player"])
    play.context.register_environment(adding(play))
    await play.serve()
    controller = await play.controller
    assert isinstance(controller, Controller)
    trial_id = await play.start({"ann": None, "bob": "counts"}, properties={"color": "red"})
    (info,) = await controller.get_trial_info()
    actors = await controller.get_actors(trial_id)
    versions = await controller.get_remote_versions()

    assert (info.trial_id, info.state) == (trial_id, TrialState.PENDING)
    assert (info.env_name, info.tick_id, info.properties) == ("env", 0, {"color": "red"})
    assert info.duration > 0
    assert await controller.get_trial_info([trial_id, "unheard"]) != []
    assert await controller.get_trial_info(["unheard"]) == []
    assert actors == [ActorInfo("ann", "player"), ActorInfo("bob", "player")]
    assert {"orchestrator", "cogment-api", "grpc"} <= versions.keys()
    with pytest.raises(TrialError, match=r"Unknown trial \[unheard\]"):
        await controller.get_actors("unheard")


async def test_watching_gives_present_states_and_then_each_change_once(play):
    play.context.register_actor(counting(play), "counts", ["player"])
    play.context.register_environment(adding(play))
    await play.serve()
    old = await play.start({"ann": "counts"}, max_steps=1)
    await play.ended(old)
    watched = play.controller.watch_trials()
    first = await anext(watched)
    new = await play.start({"ann": "counts"}, max_steps=1)
    states = []
    async for info in watched:
        states.append((info.trial_id, info.state))
        if info.state is TrialState.ENDED:
            break
    await watched.aclose()

    assert (first.trial_id, first.state) == (old, TrialState.ENDED)
    assert (first.env_name, first.tick_id, first.duration) == (None, None, None)
    assert states == [(new, state) for state in list(TrialState)[1:]]


async def test_watching_ends_when_it_is_sent_false(play):
    play.context.register_actor(counting(play), "counts", ["player"])
    play.context.register_environment(adding(play))
    await play.serve()
    await play.ended(await play.start({"ann": "counts"}, max_steps=1))
    watched = play.controller.watch_trials([TrialState.ENDED], full_info=True)

    assert (await anext(watched)).env_name == "env"
    with pytest.raises(StopAsyncIteration):
        await watched.asend(False)


async def test_a_filter_is_a_state(play):
    with pytest.raises(TrialError, match="'RUNNING'"):
        await anext(Context("me", None).get_controller(play.server).watch_trials(["RUNNING"]))


async def test_a_requested_id_is_had_once(play):
    play.context.register_environment(adding(play))
    await play.serve()
    params = parameters(play.endpoint, {"ann": (CLIENT, "")})
    first = await play.controller.start_trial(trial_id_requested="mine", trial_params=params)
    second = await play.controller.start_trial(trial_id_requested="mine", trial_params=params)

    assert (first, second) == ("mine", "")


async def test_a_configuration_and_parameters_exclude_each_other(play):
    controller = Context("me", None).get_controller(play.server)

    with pytest.raises(
        TrialError, match=r"^Cannot provide both a start config and start parameters$"
    ):
        await controller.start_trial(Int32Value(), trial_params=TrialParameters(None))


async def test_terminating_needs_an_id(play):
    with pytest.raises(TrialError, match="at least one"):
        await Context("me", None).get_controller(play.server).terminate_trial([])


async def test_what_the_server_refuses_is_an_error_with_its_reason(play):
    play.context.register_environment(adding(play))
    await play.serve()

    with pytest.raises(TrialError, match="no actors"):
        await play.start({})
    with pytest.raises(TrialError, match="'unheard'"):
        await play.controller.terminate_trial(["unheard"])
    with pytest.raises(TrialError, match="'unheard'"):
        await play.context.join_trial("unheard", play.place, actor_name="ann")
    trial_id = await play.start({"ann": None})
    with pytest.raises(TrialError, match="'zoe'"):
        await play.context.join_trial(trial_id, play.place, actor_name="zoe")


async def test_a_soft_end_gives_the_last_actions_and_observations(play):
    play.context.register_actor(counting(play), "counts", ["player"])
    play.context.register_environment(adding(play))
    await play.serve()
    trial_id = await play.start({"ann": "counts"})
    async for _ in play.controller.watch_trials([TrialState.RUNNING]):
        break
    await play.controller.terminate_trial([trial_id])
    await play.ended(trial_id)
    await play.context.close()

    for name in ("ann", "env"):
        assert types(play.events[name])[-2:] == [EventType.ENDING, EventType.FINAL]
    assert play.events["env"][-2].actions
    assert play.events["ann"][-2].observation


async def test_a_hard_end_has_no_final_event(play):
    ends = asyncio.Queue()

    async def waiting(session):
        session.start()
        ends.put_nowait(types(await events_of(session)))

    play.context.register_actor(waiting, "waits", ["player"])
    play.context.register_environment(adding(play))
    await play.serve()
    trial_id = await play.start({"ann": "waits"})
    async for _ in play.controller.watch_trials([TrialState.RUNNING]):
        break
    await play.controller.terminate_trial([trial_id], hard=True)

    assert EventType.FINAL not in await ends.get()
    await play.ended(trial_id)


async def test_the_environment_ends_the_trial_and_late_rewards_arrive(play):
    async def ending(session):
        session.start([("*", StringValue(value="begin"))], auto_done_sending=False)
        async for event in session.all_events():
            if event.actions:
                session.end([("*", StringValue(value="end"))])
                session.add_reward(4.0, 1.0, ["*"])
                session.sending_done()

    async def listening(session):
        session.start()
        async for event in session.all_events():
            play.keep(session, event)
            if event.type is EventType.ACTIVE and event.observation:
                session.do_action(None)

    play.context.register_actor(listening, "listens", ["player"])
    play.context.register_environment(ending)
    await play.serve()
    await play.ended(await play.start({"ann": "listens"}))
    await play.context.close()

    last, reward, final = play.events["ann"][-3:]
    assert last.observation.observation == StringValue(value="end")
    assert (reward.rewards[0].value, final.type) == (4.0, EventType.FINAL)


async def test_rewards_and_messages_reach_those_they_name(play):
    async def speaking(session):
        session.start()
        async for event in session.all_events():
            play.keep(session, event)
            if event.type is EventType.ACTIVE and event.observation:
                if event.observation.tick_id == 0 and session.name == "ann":
                    session.send_message(StringValue(value="all"), ["*"])
                    session.send_message(StringValue(value="world"), [session.env_name])
                    session.add_reward(1.0, 1.0, ["bob"], user_data=StringValue(value="why"))
                    session.add_reward(3.0, 3.0, ["player.*"])
                session.do_action(None)

    play.context.register_actor(speaking, "speaks", ["player"])
    play.context.register_environment(adding(play))
    await play.serve()
    await play.ended(await play.start({"ann": "speaks", "bob": "speaks"}, max_steps=2))
    await play.context.close()

    messages = {
        name: [message for event in events for message in event.messages]
        for name, events in play.events.items()
    }
    assert [(m.sender_name, m.payload.value) for m in messages["env"]] == [("ann", "world")]
    for name in ("ann", "bob"):
        assert [(m.sender_name, m.payload.value) for m in messages[name]] == [("ann", "all")]
    (reward,) = [reward for event in play.events["bob"] for reward in event.rewards]
    assert (reward.value, reward.tick_id, reward.receiver_name) == (2.5, 0, "bob")
    assert [source.sender_name for source in reward.sources] == ["ann", "ann"]
    assert reward.sources[0].user_data.Is(StringValue.DESCRIPTOR)
    (reward,) = [reward for event in play.events["ann"] for reward in event.rewards]
    assert reward.value == 3.0


async def test_an_actor_without_an_action_is_unavailable(play):
    play.context.register_environment(adding(play))
    play.context.register_actor(counting(play), "counts", ["player"])
    await play.serve()
    params = parameters(
        play.endpoint, {"ann": (play.endpoint, "counts"), "bob": (CLIENT, "")}, max_steps=1
    )
    params.actors["bob"].optional = True
    params.actors["bob"].initial_connection_timeout = 0.05
    await play.ended(await play.controller.start_trial(trial_params=params))
    await play.context.close()

    present, absent = play.events["env"][0].actions
    assert (present.status, absent.status) == (ActorStatus.ACTIVE, ActorStatus.UNAVAILABLE)
    assert absent.action is None


@pytest.mark.parametrize("broken", ["actor", "environment"])
async def test_an_exception_of_an_implementation_ends_the_trial_with_its_reason(
    play, broken, caplog
):
    async def failing(session):
        session.start()
        raise ValueError("the dice are loaded")

    is_actor = broken == "actor"
    play.context.register_actor(failing if is_actor else counting(play), "x", ["player"])
    play.context.register_environment(adding(play) if is_actor else failing)
    await play.serve()
    with caplog.at_level("INFO"):
        await play.ended(await play.start({"ann": "x"}))

    assert "ended in tick 0" in caplog.text
    assert caplog.text.count("ValueError: the dice are loaded") >= 2


async def test_an_exception_of_an_actor_that_joined_is_raised_where_it_joined(play):
    async def failing(session):
        session.start()
        raise ValueError("the dice are loaded")

    play.context.register_actor(failing, "fails", ["player"])
    play.context.register_environment(adding(play))
    await play.serve()
    trial_id = await play.start({"ann": None})

    with pytest.raises(ValueError, match="dice"):
        await play.context.join_trial(trial_id, play.place, actor_name="ann")
    await play.ended(trial_id)


async def test_a_cancelled_join_leaves_the_trial(play):
    begun = asyncio.Event()

    async def waiting(session):
        session.start()
        begun.set()
        await events_of(session)

    play.context.register_actor(waiting, "waits", ["player"])
    play.context.register_environment(adding(play))
    await play.serve()
    trial_id = await play.start({"ann": None})
    joined = asyncio.create_task(play.context.join_trial(trial_id, play.place, actor_name="ann"))
    await begun.wait()
    joined.cancel()

    with pytest.raises(asyncio.CancelledError):
        await joined
    await play.ended(trial_id)


async def test_a_pre_trial_hook_completes_the_parameters(play):
    about = []

    async def hook(session):
        about.append((session.get_user_id(), session.trial_parameters.config))
        session.trial_parameters = parameters(
            play.endpoint, {"ann": (play.endpoint, "counts")}, max_steps=1
        )

    play.context.register_pre_trial_hook(hook)
    play.context.register_actor(counting(play), "counts", ["player"])
    play.context.register_environment(adding(play))
    await play.serve()
    options = TrialsOptions(hooks=(play.endpoint,))
    async with Server(options) as server:
        if play.way == "in process":
            server.register(play.context._implementations)
        controller = play.context.get_controller(server)
        trial_id = await controller.start_trial(Int32Value(value=6))
        async for _ in controller.watch_trials([TrialState.ENDED]):
            break

    assert about == [("me", Int32Value(value=6))]
    assert trial_id
    assert seen(play.events["ann"]) == ["begin", "0", "1"]


async def test_a_hook_that_fails_refuses_the_start(play):
    async def hook(_):
        raise ValueError("no seats")

    play.context.register_pre_trial_hook(hook)
    await play.serve()
    async with Server(TrialsOptions(hooks=(play.endpoint,))) as server:
        if play.way == "in process":
            server.register(play.context._implementations)

        with pytest.raises(TrialError, match=r"Pre-trial hook failure \[.*no seats"):
            await play.context.get_controller(server).start_trial()


async def test_a_trial_whose_start_was_cancelled_says_so(play, caplog):
    caplog.set_level("INFO")
    asked = asyncio.Event()

    async def hook(_):
        asked.set()
        await asyncio.Event().wait()

    play.context.register_pre_trial_hook(hook)
    await play.serve()
    async with Server(TrialsOptions(hooks=(play.endpoint,))) as server:
        if play.way == "in process":
            server.register(play.context._implementations)
        controller = play.context.get_controller(server)
        starting = asyncio.create_task(controller.start_trial())
        await asked.wait()
        starting.cancel()
        async for _ in controller.watch_trials([TrialState.ENDED]):
            break

    assert "ended in tick 0: its start was cancelled by the caller" in caplog.text


async def test_closing_the_context_ends_the_trials_of_its_actors(play):
    play.context.register_actor(counting(play), "counts", ["player"])
    play.context.register_environment(adding(play))
    await play.serve()
    trial_id = await play.start({"ann": "counts"})
    controller = Context("other", None).get_controller(play.server)
    async for _ in controller.watch_trials([TrialState.RUNNING]):
        break
    await play.context.close()

    async for info in controller.watch_trials([TrialState.ENDED]):
        assert info.trial_id == trial_id
        break


async def test_a_server_that_is_not_there_is_named():
    async with Context("me", SETTINGS) as context:
        context.register_actor(events_of, "any", ["player"])
        controller = context.get_controller("grpc://127.0.0.1:1")

        with pytest.raises(TrialError, match=r"127\.0\.0\.1:1"):
            await controller.get_trial_info()
        with pytest.raises(TrialError, match=r"127\.0\.0\.1:1"):
            await anext(controller.watch_trials())
        with pytest.raises(TrialError, match=r"127\.0\.0\.1:1"):
            await context.join_trial("t", "grpc://127.0.0.1:1", actor_name="ann")


async def test_a_server_that_vanishes_ends_the_loop_of_a_joined_actor():
    begun, ended = asyncio.Event(), asyncio.Queue()

    async def waiting(session):
        session.start()
        begun.set()
        ended.put_nowait(types(await events_of(session)))

    async with Context("me", SETTINGS) as context, Server() as server:
        context.register_actor(waiting, "waits", ["player"])
        port, _ = await server.listen("127.0.0.1", 0)
        params = parameters("grpc://127.0.0.1:1", {"ann": (CLIENT, ""), "bob": (CLIENT, "")})
        place = f"grpc://127.0.0.1:{port}"
        trial_id = await context.get_controller(place).start_trial(trial_params=params)
        joined = asyncio.create_task(context.join_trial(trial_id, place, actor_name="ann"))
        await begun.wait()
        await server.close(0)

        assert EventType.FINAL not in await ended.get()
        await joined


async def test_a_port_in_use_is_named():
    first, second = Context("me", SETTINGS), Context("me", SETTINGS)
    for context in (first, second):
        context.register_actor(events_of, "any", ["player"])
    serving = asyncio.create_task(first.serve_all_registered(ServedEndpoint()))
    await asyncio.sleep(0)

    with pytest.raises(TrialError, match=str(first.served_port)):
        await second.serve_all_registered(ServedEndpoint(first.served_port))
    serving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await serving
    assert first.served_port == 0


async def test_a_context_whose_serving_was_cancelled_closes():
    async with Context("me", SETTINGS) as context:
        context.register_actor(events_of, "any", ["player"])
        serving = asyncio.create_task(context.serve_all_registered())
        await asyncio.sleep(0)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{context.served_port}") as channel:
            await channel.channel_ready()
        serving.cancel()

    with pytest.raises(asyncio.CancelledError):
        await serving
    assert context.served_port == 0


async def test_a_served_context_says_its_versions_and_its_load():
    async with Context("me", SETTINGS) as context:
        context.register_actor(events_of, "any", ["player"])
        serving = asyncio.create_task(context.serve_all_registered())
        await asyncio.sleep(0)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{context.served_port}") as channel:
            stub = actor_pb2_grpc.ServiceActorSPStub(channel)
            info = await stub.Version(VersionRequest(), wait_for_ready=True)
            everything = await stub.Status(StatusRequest(names=["*"]))
            one = await stub.Status(StatusRequest(names=["nb_sessions", "unheard"]))
            nameless = stub.RunTrial()
            with pytest.raises(grpc.aio.AioRpcError, match="trial-id"):
                await nameless.read()

        assert {version.name for version in info.versions} == {"arkml", "grpc"}
        assert everything.statuses.keys() == {"overall_load", "nb_sessions"}
        assert dict(one.statuses) == {"nb_sessions": "0"}
    await serving


def introduced():
    init = ActorInitialInput(actor_name="ann", actor_class="player")
    return ActorRunTrialInput(state=NORMAL, init_input=init).SerializeToString()


DAMAGED = b"\xff\xff\xff"


async def test_a_damaged_message_ends_the_session_of_a_called_actor():
    ended = asyncio.Queue()

    async def waiting(session):
        session.start()
        ended.put_nowait(await events_of(session))

    async with Context("me", SETTINGS) as context:
        context.register_actor(waiting, "waits", ["player"])
        serving = asyncio.create_task(context.serve_all_registered())
        await asyncio.sleep(0)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{context.served_port}") as channel:
            method = channel.stream_stream("/cogmentAPI.ServiceActorSP/RunTrial")
            call = method(metadata=(("trial-id", "t"),), wait_for_ready=True)
            await call.write(introduced())
            first = ActorRunTrialOutput.FromString(await call.read())
            await call.write(DAMAGED)

            assert first.WhichOneof("data") == "init_output"
            assert await call.read() is grpc.aio.EOF
            assert await ended.get() == []
    await serving


class RawServer:
    """A server that sends given bytes to every actor that joins, and then waits."""

    options = ()

    def __init__(self, *sent):
        self._sent = sent
        self.received = asyncio.Queue()

    async def run_trial(self, _, context):
        for message in self._sent:
            await context.write(message)
        while (message := await context.read()) is not grpc.aio.EOF:
            self.received.put_nowait(ActorRunTrialOutput.FromString(message))

    @contextlib.asynccontextmanager
    async def at(self):
        server = grpc.aio.server(options=self.options)
        handler = grpc.stream_stream_rpc_method_handler(self.run_trial)
        service = "cogmentAPI.ClientActorSP"
        handlers = grpc.method_handlers_generic_handler(service, {"RunTrial": handler})
        server.add_generic_rpc_handlers((handlers,))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            yield f"grpc://127.0.0.1:{port}"
        finally:
            await server.stop(0)


def state(kind, details=None):
    return ActorRunTrialInput(state=kind, details=details).SerializeToString()


async def test_a_damaged_message_ends_the_session_of_an_actor_that_joined():
    events = []

    async def waiting(session):
        session.start()
        events.extend(await events_of(session))

    async with RawServer(introduced(), DAMAGED).at() as place, Context("me", SETTINGS) as context:
        context.register_actor(waiting, "waits", ["player"])
        await context.join_trial("t", place, actor_name="ann")

    assert events == []


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        ([state(END, "the trial is full")], r"Ended before start \[the trial is full\]"),
        ([DAMAGED], "could not be decoded"),
        ([state(HEARTBEAT), state(END)], "Ended before start"),
        ([observed(0).SerializeToString()], "unexpected init data"),
    ],
)
async def test_an_actor_that_is_not_introduced_has_not_joined(sent, reason):
    async with RawServer(*sent).at() as place, Context("me", SETTINGS) as context:
        context.register_actor(events_of, "any", ["player"])

        with pytest.raises(TrialError, match=reason):
            await context.join_trial("t", place, actor_name="ann")


async def test_a_heartbeat_before_the_introduction_is_answered():
    async def leaving(session):
        session.start()

    raw = RawServer(state(HEARTBEAT), introduced())
    async with raw.at() as place, Context("me", SETTINGS) as context:
        context.register_actor(leaving, "leaves", ["player"])
        await context.join_trial("t", place, actor_name="ann")
        received = [await raw.received.get() for _ in range(2)]

    assert received[0].init_output.actor_name == "ann"
    assert received[1].state == HEARTBEAT


FEW_KEPT = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 4_096))
"""Options by which gRPC takes few messages from the other end that are not read here."""


class DeafServer(RawServer):
    """A server that goes on with heartbeats, and reads no answer."""

    options = FEW_KEPT

    async def run_trial(self, _, context):
        for message in self._sent:
            await context.write(message)
        while True:
            await context.write(state(HEARTBEAT))


async def test_a_server_that_does_not_read_is_given_up(monkeypatch, caplog):
    async def waiting(session):
        session.start()
        await events_of(session)

    monkeypatch.setattr(grpc_streams, "MOST_WAITING", 100)
    server = DeafServer(introduced())
    async with server.at() as place, Context("me", SETTINGS) as context:
        context.register_actor(waiting, "waits", ["player"])
        await context.join_trial("t", place, actor_name="ann")

    assert "is given up: it left 101 messages of " in caplog.text


async def test_a_server_that_does_not_read_and_introduces_nobody_is_given_up(monkeypatch):
    monkeypatch.setattr(grpc_streams, "MOST_WAITING", 100)
    async with DeafServer().at() as place, Context("me", SETTINGS) as context:
        context.register_actor(events_of, "any", ["player"])

        with pytest.raises(TrialError, match="let no actor in: it left 101 messages of "):
            await context.join_trial("t", place, actor_name="ann")


@pytest.mark.parametrize("most", ["MOST_WAITING", "MOST_WAITING_BYTES"])
async def test_a_trial_that_does_not_read_its_actor_is_given_up(monkeypatch, caplog, most):
    ended = asyncio.Queue()

    async def waiting(session):
        session.start()
        ended.put_nowait(await events_of(session))

    monkeypatch.setattr(grpc_streams, most, 100)
    async with Context("me", SETTINGS) as context:
        context.register_actor(waiting, "waits", ["player"])
        serving = asyncio.create_task(context.serve_all_registered())
        await asyncio.sleep(0)
        place = f"127.0.0.1:{context.served_port}"
        async with grpc.aio.insecure_channel(place, options=FEW_KEPT) as channel:
            method = channel.stream_stream("/cogmentAPI.ServiceActorSP/RunTrial")
            call = method(metadata=(("trial-id", "t"),), wait_for_ready=True)
            await call.write(introduced())
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                while ended.empty():
                    await call.write(state(HEARTBEAT))
            assert await ended.get() == []
    await serving

    assert "the connection was lost: it left " in caplog.text


async def test_an_actor_that_is_introduced_too_late_is_sent_away(monkeypatch):
    from arkml.trials.sdk import opening
    from arkml.trials.sdk.implementations import RegisteredImplementations

    monkeypatch.setattr(opening, "INTRODUCTION_SECONDS", 0.01)
    ends = Ends()
    stream = RegisteredImplementations(SETTINGS).open_actor("", "t", ends)
    await ends.until(lambda: ends.is_closed)
    stream.receive(ActorRunTrialInput())

    assert ends.kinds() == ["END"]
    assert "no init_input" in ends.sent[0].details
