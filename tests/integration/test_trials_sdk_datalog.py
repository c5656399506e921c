"""Datalogs of the SDK, which servers send the samples of trials."""

import asyncio
import contextlib

import grpc
import pytest
from google.protobuf.wrappers_pb2 import Int64Value, StringValue
from tests.trials_sdk_parts import SETTINGS, parameters
from tests.waiting import PATIENCE

from arkml.trials import (
    ActorStatus,
    Context,
    EventType,
    LogSample,
    ServedEndpoint,
    Server,
    TrialError,
    TrialParameters,
    TrialState,
)
from arkml.trials.wire.common_pb2 import Action
from arkml.trials.wire.datalog_pb2 import DatalogSample, RunTrialDatalogInput, SampleInfo
from arkml.trials.wire.environment_pb2 import ObservationSet

TICKS = 3


async def count(session):
    session.start([("*", StringValue(value="0"))])
    async for event in session.all_events():
        for _ in event.actions:
            tick = session.get_tick_id() + 1
            session.add_reward(float(tick), 1.0, ["ann"])
            session.send_message(StringValue(value="well"), ["ann"])
            observations = [("*", StringValue(value=str(tick)))]
            send = session.end if tick == TICKS else session.produce_observations
            send(observations)


async def act(session):
    session.start()
    async for event in session.all_events():
        if event.observation and event.type == EventType.ACTIVE:
            session.do_action(Int64Value(value=10 + event.observation.tick_id))


@contextlib.asynccontextmanager
async def logging_by(implementation):
    """Serve a datalog; yield its context and endpoint."""
    async with Context("logger", SETTINGS) as context:
        context.register_datalog(implementation)
        serving = asyncio.create_task(context.serve_all_registered(ServedEndpoint()))
        while not context.served_port:
            await asyncio.sleep(0)
        yield context, f"grpc://127.0.0.1:{context.served_port}"
    await serving


async def test_a_datalog_of_the_sdk_gets_every_tick():
    done = asyncio.get_running_loop().create_future()

    async def log(session):
        session.start()
        samples = [sample async for sample in session.all_samples()]
        done.set_result((session, samples))

    async with (
        logging_by(log) as (_, endpoint),
        Server() as server,
        Context("eve", SETTINGS) as context,
    ):
        context.register_environment(count)
        context.register_actor(act, "act", ["player"])
        await context.serve_all_registered(server)
        params = parameters("local://", {"ann": ("local://", "act")}, datalog_endpoint=endpoint)
        trial_id = await context.get_controller(server).start_trial(trial_params=params)
        async with asyncio.timeout(PATIENCE):
            session, samples = await done

    assert (session.trial_id, session.user_id) == (trial_id, "eve")
    assert [one.tick_id for one in samples] == [*range(TICKS + 1)]
    assert samples[-1].state is TrialState.ENDED
    actions = [one.get_action("ann") for one in samples[:-1]]
    assert [one.action.value for one in actions] == [10, 11, 12]
    assert {one.status for one in actions} == {ActorStatus.ACTIVE}
    assert [one.get_observation(0).observation.value for one in samples] == ["0", "1", "2", "3"]
    assert [[reward.value for reward in one.all_rewards()] for one in samples[:2]] == [[1.0], [2.0]]
    assert next(samples[0].all_messages()).payload == StringValue(value="well")
    assert list(samples[0].all_actor_names()) == ["ann"]
    again = LogSample(session.trial_parameters)
    again.deserialize(samples[1].serialize())
    assert (again.tick_id, again.get_action(0).action.value) == (1, 11)
    with pytest.raises(TrialError, match=r"Invalid actor \[tim\]: the trial has ann"):
        again.get_action("tim")
    with pytest.raises(TrialError, match="the bytes are not a sample"):
        again.deserialize(b"\xff")


async def test_actors_that_were_replaced_have_no_action():
    params = parameters("local://", {"ann": ("local://", ""), "bob": ("local://", "")})
    raw = DatalogSample(default_actors=[0], unavailable_actors=[1])
    for _ in range(2):
        raw.actions.add(tick_id=-2)
    sample = LogSample.of(params, raw)

    assert [sample.get_action(one).status for one in (0, 1)] == [
        ActorStatus.DEFAULT,
        ActorStatus.UNAVAILABLE,
    ]
    assert sample.get_action(0).action is None
    assert sample.get_observation(0) is None
    assert LogSample(TrialParameters(None)).state is None


@pytest.mark.parametrize(
    ("sample", "sentence"),
    [
        (DatalogSample(actions=[Action()]), "a sample has 1 actions for 2 actors"),
        (
            DatalogSample(observations=ObservationSet(actors_map=[0], observations=[b""])),
            "a sample has 1 observations for 2 actors",
        ),
        (
            DatalogSample(observations=ObservationSet(actors_map=[0, -1], observations=[b""])),
            "an observation that is not one of its 1",
        ),
        (b"\xff", "the server sent bytes that are not a message of the protocol"),
    ],
)
async def test_a_sample_that_is_not_one_of_its_trial_ends_the_log(sample, sentence):
    read = []

    async def log(session):
        session.start()
        async for one in session.all_samples():
            read.extend([one.state])

    params = parameters("local://", {"ann": ("local://", ""), "bob": ("local://", "")})
    async with logging_by(log) as (context, _):
        address = f"127.0.0.1:{context.served_port}"
        async with grpc.aio.insecure_channel(address) as channel:
            run = channel.stream_stream("/cogmentAPI.DatalogSP/RunTrialDatalog")
            call = run(metadata=(("trial-id", "t"),))
            newer = SampleInfo(state=77)  # of a server that has more states
            for message in (
                RunTrialDatalogInput(trial_params=params.raw_params),
                RunTrialDatalogInput(sample=DatalogSample(info=newer)),
            ):
                await call.write(message.SerializeToString())
            if isinstance(sample, DatalogSample):
                sample = RunTrialDatalogInput(sample=sample).SerializeToString()
            await call.write(sample)

            assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert sentence in await call.details()
    assert read == [TrialState.UNKNOWN]


async def test_samples_that_cannot_be_read_are_a_sentence():
    params = parameters("local://", {"ann": ("local://", "")})
    with pytest.raises(TrialError, match="a sample has 2 actions for 1 actors"):
        LogSample(params).deserialize(DatalogSample(actions=[Action()] * 2).SerializeToString())
    observed = ObservationSet(actors_map=[0], observations=[b"\xff"])
    raw = DatalogSample(actions=[Action(content=b"\xff")], observations=observed)
    sample = LogSample.of(params, raw)

    for read in (sample.get_action, sample.get_observation):
        with pytest.raises(TrialError, match="a sample has 1 bytes that are not a google"):
            read("ann")


@pytest.mark.parametrize("first", [DatalogSample(info=SampleInfo()), None])
async def test_a_datalog_is_sent_parameters_first(first):
    async def log(session):
        session.start()

    async with logging_by(log) as (context, _):
        address = f"127.0.0.1:{context.served_port}"
        async with grpc.aio.insecure_channel(address) as channel:
            run = channel.stream_stream("/cogmentAPI.DatalogSP/RunTrialDatalog")
            call = run(metadata=(("trial-id", "t"),))
            message = first and RunTrialDatalogInput(sample=first).SerializeToString()
            await call.write(message or b"\xff")

            assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert "is sent the parameters of its trial first" in await call.details()


async def test_there_is_one_datalog_and_it_is_served_at_a_port():
    context = Context("eve", SETTINGS)
    context.register_datalog(act)
    with pytest.raises(TrialError, match="Only one datalog service can be registered"):
        context.register_datalog(act)
    async with Server() as server:
        with pytest.raises(TrialError, match="a datalog is called at grpc://HOST:PORT"):
            await context.serve_all_registered(server)
