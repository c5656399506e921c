"""Datalogs that trials name in their parameters, as services over gRPC."""

import asyncio
import contextlib
import logging
import socket
from functools import partial

import grpc
from tests.driven_trial import LAST, LAST_ACK, observations, ready
from tests.generated_stubs import datalog_pb2_grpc
from tests.integration.trial_programs import (
    PATIENCE,
    play_actor,
    play_environment,
    playing,
    refused,
    served,
)

from arkml.trials.server import kept_trials
from arkml.trials.server.server_options import TrialLimits, TrialsOptions
from arkml.trials.wire.common_pb2 import DatalogParams, TrialState
from arkml.trials.wire.datalog_pb2 import RunTrialDatalogInput
from arkml.trials.wire.environment_pb2 import EnvRunTrialOutput


def ending_after(ticks):
    return partial(play_environment, ends_after=ticks)


class Logger(datalog_pb2_grpc.DatalogSPServicer):
    """A datalog that keeps what it is sent once `reads` is set; `leaves_after` samples it goes."""

    def __init__(self, leaves_after=None):
        self.metadata, self.params, self.samples = [], [], []
        self.leaves_after = leaves_after
        self.reads, self.is_done = asyncio.Event(), asyncio.Event()
        self.reads.set()

    async def RunTrialDatalog(self, _, context):  # noqa: N802
        self.metadata.append(dict(context.invocation_metadata()))
        while (message := await context.read()) is not grpc.aio.EOF:
            await self.reads.wait()
            message = RunTrialDatalogInput.FromString(message.SerializeToString())
            if message.HasField("trial_params"):
                self.params.append(message.trial_params)
            else:
                self.samples.append(message.sample)
            if len(self.samples) == self.leaves_after:
                return
        self.is_done.set()


@contextlib.asynccontextmanager
async def logging_to(logger, port=0):
    """Serve a datalog; yield the parameters that name it."""
    server = grpc.aio.server()
    datalog_pb2_grpc.add_DatalogSPServicer_to_server(logger, server)
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        yield DatalogParams(endpoint=f"grpc://127.0.0.1:{port}")
    finally:
        await server.stop(None)


async def played(controls, programs, datalog, user_id="u", **fields):
    """Play a trial of one actor that joins to its end; return its id."""
    params = playing(programs, 1, datalog=datalog, **fields)
    trial_id = await controls.start(params, user_id=user_id)
    peer = await controls.join(trial_id, "a0")
    await play_actor(peer)
    await controls.reached(trial_id, "ENDED")
    return trial_id


async def test_a_datalog_gets_the_parameters_and_then_every_tick():
    logger = Logger()
    async with (
        served(environment=ending_after(5)) as (controls, programs),
        logging_to(logger) as datalog,
    ):
        trial_id = await played(controls, programs, datalog, user_id="änn")
        async with asyncio.timeout(PATIENCE):
            await logger.is_done.wait()

    assert logger.metadata[0]["trial-id"] == trial_id
    assert logger.metadata[0]["user-id"] == "%C3%A4nn"
    assert [one.datalog.endpoint for one in logger.params] == [datalog.endpoint]
    assert logger.params[0].environment.name == "env"
    assert [one.info.tick_id for one in logger.samples] == [0, 1, 2, 3, 4, 5]
    assert [one.info.state for one in logger.samples[-2:]] == [
        TrialState.TERMINATING,
        TrialState.ENDED,
    ]
    assert [one.actions[0].content for one in logger.samples[:5]] == [b"x"] * 5


async def test_a_trial_whose_datalog_is_not_there_is_played_with_one_warning(caplog):
    async with served(environment=ending_after(5)) as (controls, programs):
        await played(controls, programs, DatalogParams(endpoint="grpc://127.0.0.1:1"))

    (warning,) = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert "its datalog grpc://127.0.0.1:1 is lost: 127.0.0.1:1 failed" in warning.getMessage()


async def test_numbers_and_names_without_a_meaning_are_warned_about(caplog):
    logger = Logger()
    async with (
        served(environment=ending_after(2)) as (controls, programs),
        logging_to(logger) as datalog,
    ):
        datalog.exclude_fields.extend(["Rewards", "pictures"])
        await played(controls, programs, datalog, nb_buffered_ticks=1)

    lines = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert lines[0] == "nb_buffered_ticks is 1: 2, the fewest, are kept"
    assert "excludes 'pictures', which is not a field of samples: actions, " in lines[1]
    assert len(lines) == 2


async def test_a_trial_goes_on_with_one_warning_after_its_datalog_left(caplog):
    logger = Logger(leaves_after=2)
    async with (
        served(environment=ending_after(9)) as (controls, programs),
        logging_to(logger) as datalog,
    ):
        await played(controls, programs, datalog)

    assert len(logger.samples) == 2
    (warning,) = [one for one in caplog.records if one.levelno == logging.WARNING]
    lost = f"its datalog {datalog.endpoint} is lost: {datalog.endpoint.removeprefix('grpc://')}"
    assert f"{lost} ended its stream" in warning.getMessage()


async def test_a_trial_waits_for_a_datalog_that_is_slow():
    logger = Logger()
    logger.reads.clear()
    limits = TrialLimits(queued_messages=40)
    async with (
        served(lambda _: TrialsOptions(limits=limits), environment=big_until(300)) as (
            controls,
            programs,
        ),
        logging_to(logger) as datalog,
    ):
        playing_it = asyncio.create_task(played(controls, programs, datalog))
        while not (await controls.info())[:1] or not await stands_still(controls):
            await asyncio.sleep(0)
        (info,) = await controls.info()
        waited = info.tick_id
        logger.reads.set()
        await playing_it
        async with asyncio.timeout(PATIENCE):
            await logger.is_done.wait()

    assert waited < 299
    assert [one.info.tick_id for one in logger.samples] == [*range(301)]


async def stands_still(controls):
    """Whether a trial that runs makes no tick while the loop turns a thousand times."""
    before = (await controls.info())[0]
    for _ in range(50):
        await controls.info()
    after = (await controls.info())[0]
    return before.state == TrialState.RUNNING and 0 < before.tick_id == after.tick_id


def big_until(ticks):
    """An environment whose observations have 64 KiB, which fill what a connection buffers."""

    async def environment(peer):
        await peer.hear_until("init")
        await peer.say(ready())
        await peer.say(observations(1, content=b"o" * 65_536))
        for tick in range(ticks):
            await peer.hear_until("actions")
            if tick + 1 == ticks:
                await peer.say(EnvRunTrialOutput(state=LAST))
            await peer.say(observations(1, content=b"o" * 65_536))
        await peer.say(EnvRunTrialOutput(state=LAST_ACK))
        await peer.hear_all()

    return environment


async def test_a_trial_may_be_ended_while_it_waits_for_its_datalog():
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it takes connections and says nothing
        datalog = DatalogParams(endpoint=f"grpc://127.0.0.1:{silent.getsockname()[1]}")
        async with served() as (controls, programs):
            params = playing(programs, 1, datalog=datalog)
            starting = asyncio.create_task(controls.start(params, trial_id_requested="b"))
            while not await controls.info("b"):
                await asyncio.sleep(0)
            state = await controls.state("b")
            await controls.terminate("b", hard=True)

            async with refused("trial b: the trial was terminated"):
                await starting
            silent.close()  # else the server gives it some seconds to read
    assert state == "INITIALIZING"


async def test_the_parameters_of_trials_that_wait_for_a_datalog_take_room(monkeypatch):
    monkeypatch.setattr(kept_trials, "MOST_BYTES", 10_000)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, and says nothing
        datalog = DatalogParams(endpoint=f"grpc://127.0.0.1:{silent.getsockname()[1]}")
        async with served() as (controls, programs):
            params = playing(programs, 1, datalog=datalog, properties={"text": "x" * 6_000})
            first = asyncio.create_task(controls.start(params, trial_id_requested="first"))
            while not await controls.info("first"):
                await asyncio.sleep(0.01)
            async with refused("the parameters of the trial take 6"):
                await controls.start(params)
            await controls.terminate("first", hard=True)
            async with refused("the trial was terminated"):
                await first
            params.datalog.Clear()

            assert await controls.start(params), "the room of the first is free again"
            silent.close()  # else the server gives it some seconds to read
