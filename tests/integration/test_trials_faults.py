"""Environments, actors and hooks that fail, and what a server of trials makes of it."""

import asyncio
import gc
import random
import re
from pathlib import Path

import grpc
import pytest
from tests.driven_trial import (
    action,
    actor,
    joining,
    message_for,
    observations,
    ready,
    trial_params,
    word,
)
from tests.generated_stubs import lifecycle_pb2_grpc
from tests.integration.trial_programs import (
    PATIENCE,
    Programs,
    play_actor,
    playing,
    refused,
    served,
)
from tests.mutated_messages import of_actor, of_environment
from tests.waiting import tasks_left

from arkml.trials import grpc_streams
from arkml.trials.grpc_streams import QueuedSender, SharedRoom
from arkml.trials.server import grpc_callers
from arkml.trials.server.server import Server
from arkml.trials.server.server_options import TrialLimits, TrialsOptions
from arkml.trials.wire.actor_pb2 import ActorRunTrialInput
from arkml.trials.wire.common_pb2 import Message, VersionRequest
from arkml.trials.wire.environment_pb2 import EnvRunTrialOutput


async def reason_of(controls, trial_id, caplog):
    """Return the end of a trial as the server logs it, once it is there."""
    await controls.reached(trial_id, "ENDED")
    lines = [one.getMessage() for one in caplog.records]
    ends = [line for line in lines if line.startswith(f"trial {trial_id} ended")]
    return ends[0].partition(": ")[2]


@pytest.fixture(autouse=True)
def log(caplog):
    caplog.set_level("INFO", logger="arkml.trials")
    return caplog


def unclean(caplog):
    """Return the errors that were logged, but for those of gRPC itself on what it cannot parse."""
    errors = [one for one in caplog.records if one.levelname in ("ERROR", "CRITICAL")]
    return [one.getMessage() for one in errors if one.name != "grpc._common"]


# Actors


async def test_an_actor_that_never_joins_ends_the_trial(caplog):
    async with served() as (controls, programs):
        late = actor("a1", initial_connection_timeout=0.2)
        trial_id = await controls.start(playing(programs, [actor("a0"), late]))
        peer = await controls.join(trial_id, "a0")
        reason = await reason_of(controls, trial_id, caplog)
        await peer.hear_all()

        assert reason == "actor 'a1' was lost: it did not join within 0.2 s"
        assert peer.lines[-1] == f"END {reason}"
        assert programs.peers == []


async def test_an_optional_actor_that_never_joins_is_left_out():
    async with served() as (controls, programs):
        late = actor("a1", initial_connection_timeout=0.2, optional=True)
        trial_id = await controls.start(playing(programs, [actor("a0"), late]))
        peer = await controls.join(trial_id, "a0")
        await peer.hear_until("observation 0")
        await peer.say(action())
        await peer.hear_until("observation 1")

        assert programs.peers[0].lines[1] == "actions 0 x| without 1"


@pytest.mark.parametrize("how", ["cancels", "half-closes"])
async def test_a_required_actor_that_vanishes_ends_the_trial(caplog, how):
    async with served() as (controls, programs):
        trial_id = await controls.start(playing(programs))
        first, second = [await controls.join(trial_id, name) for name in ("a0", "a1")]
        await first.hear_until("observation 0")
        if how == "cancels":
            first.stream.cancel()
        else:
            await first.stream.done_writing()
        await second.hear_until("END actor 'a0' was lost: ")

        assert "actor 'a0' was lost: " in await reason_of(controls, trial_id, caplog)
        assert unclean(caplog) == []


async def test_an_optional_actor_that_vanishes_is_replaced():
    async with served() as (controls, programs):
        actors = [actor("a0", optional=True, default_action=b"d"), actor("a1")]
        trial_id = await controls.start(playing(programs, actors))
        first, second = [await controls.join(trial_id, name) for name in ("a0", "a1")]
        await first.hear_until("observation 0")
        first.stream.cancel()
        await second.hear_until("observation 0")
        await second.say(action())
        await second.hear_until("observation 1")

        assert programs.peers[0].lines[1] == "actions 0 d|x"


async def test_an_actor_that_answers_late_is_replaced():
    async with served() as (controls, programs):
        actors = [actor("a0", optional=True, response_timeout=0.2), actor("a1")]
        trial_id = await controls.start(playing(programs, actors))
        first, second = [await controls.join(trial_id, name) for name in ("a0", "a1")]
        await second.hear_until("observation 0")
        await second.say(action())
        await second.hear_until("observation 1")
        await first.hear_all()

        assert first.lines[-1] == "END it did not act within 0.2 s"
        assert programs.peers[0].lines[1] == "actions 0 |x without 0"


async def test_actions_of_ticks_to_come_are_ignored(caplog):
    async with served() as (controls, programs):
        trial_id = await controls.start(playing(programs, 1))
        peer = await controls.join(trial_id, "a0")
        await peer.hear_until("observation 0")
        await peer.say(action(b"future", tick=5))
        await peer.say(action(b"now", tick=0))
        await peer.hear_until("observation 1")

        assert programs.peers[0].lines[1] == "actions 0 now"
        assert "an action of 'a0' for tick 5 was ignored in tick 0" in caplog.text


@pytest.mark.parametrize("moment", ["first", "later"])
async def test_an_actor_that_sends_what_is_not_a_message_is_lost(caplog, moment):
    async with served() as (controls, programs):
        trial_id = await controls.start(
            playing(programs, [actor("a0", optional=True), actor("a1")])
        )
        raw = controls.channel.stream_stream("/cogmentAPI.ClientActorSP/RunTrial")
        call = raw(metadata=[("trial-id", trial_id)])
        if moment == "later":
            await call.write(joining("a0").SerializeToString())
            await call.read()
        await call.write(b"\xff\xff\xff")
        if moment == "first":
            async with refused("it sent bytes that are not a message of the protocol"):
                await call.read()
            await controls.join(trial_id, "a0")
        else:
            async with asyncio.timeout(PATIENCE):
                while (content := await call.read()) is not grpc.aio.EOF:
                    last = word(ActorRunTrialInput.FromString(content))
            assert last.startswith("END it sent bytes that are not a message of the protocol")
        peer = await controls.join(trial_id, "a1")
        await peer.hear_until("observation 0")

        assert unclean(caplog) == []


async def test_a_service_actor_that_is_not_there_is_lost(caplog):
    async with served() as (controls, programs):
        actors = [actor("a0", endpoint="grpc://127.0.0.1:1"), actor("a1")]
        trial_id = await controls.start(playing(programs, actors))

        assert (await reason_of(controls, trial_id, caplog)).startswith(
            "actor 'a0' was lost: 127.0.0.1:1 failed: UNAVAILABLE"
        )


async def flooded(peer):
    """Be an environment that sends messages of 64 KiB to actors until its trial ends."""
    await peer.hear_until("init")
    await peer.say(ready())
    await peer.say(observations(2))
    message = Message(tick_id=-1, receiver_name="a0")
    message.payload.type_url, message.payload.value = "x", bytes(65_536)
    flood = EnvRunTrialOutput(state=1, message=message)

    async def say():
        while True:
            await peer.say(flood)

    saying = asyncio.create_task(say())
    try:
        await peer.hear_until("actions")
        await peer.hear_until("END")
    finally:
        saying.cancel()


async def test_a_server_calls_as_many_endpoints_as_its_descriptors_allow(caplog, monkeypatch):
    monkeypatch.setattr(grpc_callers, "share_for_connections", lambda: 1)
    async with served() as (controls, programs):
        await controls.start(playing(programs, [actor("a0", endpoint=programs.endpoint)]))
        other = actor("a0", endpoint="grpc://127.0.0.2:9")
        trial_id = await controls.start(playing(programs, [other]))

        reason = await reason_of(controls, trial_id, caplog)
        assert reason.startswith(
            "actor 'a0' was lost: 127.0.0.2:9 is not called: this server calls 1"
        )
        assert unclean(caplog) == []


A_MIB = r"actor 'a0' was lost: it left \d+ messages of 1\d{6} bytes"


@pytest.fixture(params=["its own", "all streams"])
def limits(request, monkeypatch):
    """Limits by which a MiB may wait for one who does not read, or for all."""
    if request.param == "its own":
        return TrialLimits(queued_bytes=1 << 20)
    monkeypatch.setattr(grpc_streams, "MOST_WAITING_BYTES", 1 << 20)
    return TrialLimits(queued_bytes=1 << 28)


async def test_a_client_that_does_not_read_is_lost_and_its_memory_bounded(caplog, limits):
    async with served(lambda _: TrialsOptions(limits=limits), environment=flooded) as (
        controls,
        programs,
    ):
        actors = [actor("a0", optional=True), actor("a1")]
        trial_id = await controls.start(playing(programs, actors))
        deaf, peer = [await controls.join(trial_id, name) for name in ("a0", "a1")]
        await peer.hear_until("observation 0")
        await peer.say(action())
        async with asyncio.timeout(PATIENCE):
            while not programs.peers[0].lines[1:]:
                await controls.state(trial_id)
        await controls.terminate(trial_id, hard=True)
        await peer.hear_until("END")

        assert programs.peers[0].lines[1] == "actions 0 |x without 0"
        assert re.search(A_MIB, caplog.text)
        with pytest.raises(grpc.aio.AioRpcError):
            await deaf.hear_all()
        assert unclean(caplog) == []


async def test_a_service_actor_that_does_not_read_is_lost(caplog, limits):
    async def deaf(_):
        await asyncio.Event().wait()

    async with served(lambda _: TrialsOptions(limits=limits), environment=flooded, actor=deaf) as (
        controls,
        programs,
    ):
        actors = [actor("a0", endpoint=programs.endpoint, optional=True), actor("a1")]
        trial_id = await controls.start(playing(programs, actors))
        peer = await controls.join(trial_id, "a1")
        await peer.hear_until("observation 0")
        await peer.say(action())
        async with asyncio.timeout(PATIENCE):
            while "actor 'a0' was lost: it left " not in caplog.text:
                await controls.state(trial_id)

        assert re.search(A_MIB, caplog.text)
        assert unclean(caplog) == []


async def test_a_message_above_the_limit_loses_its_sender(caplog):
    limits = TrialLimits(message_bytes=10_000)
    async with served(lambda _: TrialsOptions(limits=limits)) as (controls, programs):
        actors = [actor("a0", optional=True), actor("a1")]
        trial_id = await controls.start(playing(programs, actors))
        first, second = [await controls.join(trial_id, name) for name in ("a0", "a1")]
        await second.hear_until("observation 0")
        await first.say(action(bytes(20_000)))
        await second.say(action())
        await second.hear_until("observation 1")

        assert programs.peers[0].lines[1] == "actions 0 |x without 0"
        assert unclean(caplog) == []


@pytest.mark.parametrize(("size", "is_refused"), [(6_000, False), (9_000, True)])
async def test_metadata_above_the_limit_is_refused(size, is_refused):
    async with Server() as server:
        port, _ = await server.listen("127.0.0.1", 0)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = lifecycle_pb2_grpc.TrialLifecycleSPStub(channel).Version(
                VersionRequest(), metadata=(("note", "x" * size),), timeout=PATIENCE
            )
            code = await call.code()

    assert (code is grpc.StatusCode.RESOURCE_EXHAUSTED) is is_refused


# Environments


async def silent(peer):
    await peer.hear_until("END")


async def dying(peer):
    await peer.hear_until("init")
    await peer.say(ready())
    await peer.say(observations(1))
    await peer.hear_until("actions")
    raise ValueError("the level is gone")


async def leaving(peer):
    await peer.hear_until("init")


async def skipping(peer):
    await peer.hear_until("init")
    await peer.say(ready())
    await peer.say(observations(1))
    await peer.hear_until("actions")
    await peer.say(observations(1, tick=7))
    await peer.hear_until("END")


async def forgetting(peer):
    await peer.hear_until("init")
    await peer.say(ready())
    await peer.say(observations(0))
    await peer.hear_until("END")


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        (dying, "the environment was lost: 127.0.0.1:PORT failed: UNKNOWN: "),
        (leaving, "the environment was lost: 127.0.0.1:PORT ended its stream"),
        (skipping, "the environment broke the protocol: it sent observations of tick 7 instead"),
        (forgetting, "the environment broke the protocol: it sent observations for 0 of 1 actors"),
        (silent, "nothing happened for 1 s (max_inactivity)"),
    ],
)
async def test_an_environment_that_fails_ends_the_trial_with_the_reason(
    environment, sentence, caplog
):
    async with served(environment=environment) as (controls, programs):
        trial_id = await controls.start(playing(programs, 1, max_inactivity=1))
        peer = await controls.join(trial_id, "a0")
        await play_actor(peer)
        reason = await reason_of(controls, trial_id, caplog)

        assert reason.startswith(sentence.replace("PORT", str(programs.port)))
        assert peer.lines[-1] == f"END {reason}"


async def test_an_environment_that_is_not_there_ends_the_trial(caplog):
    async with served() as (controls, _):
        trial_id = await controls.start(trial_params(1, "grpc://127.0.0.1:1"))
        peer = await controls.join(trial_id, "a0")
        await peer.hear_all()

        assert (await reason_of(controls, trial_id, caplog)).startswith(
            "the environment was lost: 127.0.0.1:1 failed: UNAVAILABLE"
        )
        assert unclean(caplog) == []


async def test_an_environment_whose_process_dies_ends_the_trial(caplog):
    async with served() as (controls, programs):
        trial_id = await controls.start(playing(programs, 1))
        peer = await controls.join(trial_id, "a0")
        await peer.hear_until("observation 0")
        await programs.server.stop(None)
        await peer.hear_until("END the environment was lost: ")

        assert "the environment was lost: " in await reason_of(controls, trial_id, caplog)


async def test_an_environment_that_came_back_is_called_by_the_next_trial():
    async with served() as (controls, programs):
        params = playing(programs, 1)
        await programs.server.stop(None)
        trial_id = await controls.start(params)
        await (await controls.join(trial_id, "a0")).hear_all()
        back = Programs(port=programs.port)
        await back.server.start()
        trial_id = await controls.start(params)
        peer = await controls.join(trial_id, "a0")
        await peer.hear_until("observation 0")
        await controls.terminate(trial_id, hard=True)
        await peer.hear_all()
        await back.server.stop(None)

        assert peer.lines == ["init a0", "observation 0 o", "END the trial was terminated"]


async def test_an_environment_that_sends_what_is_not_a_message_ends_the_trial(caplog):
    async def garbage(_, context):
        await context.read()
        await context.write(b"\xff\xff\xff")
        while await context.read() is not grpc.aio.EOF:
            pass

    server = grpc.aio.server()
    handler = grpc.stream_stream_rpc_method_handler(garbage)
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("cogmentAPI.EnvironmentSP", {"RunTrial": handler})]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with served() as (controls, _):
        trial_id = await controls.start(trial_params(1, f"grpc://127.0.0.1:{port}"))
        peer = await controls.join(trial_id, "a0")
        await peer.hear_all()
        await server.stop(None)

        assert (await reason_of(controls, trial_id, caplog)).startswith(
            f"the environment was lost: 127.0.0.1:{port} "
        )
        assert unclean(caplog) == []


# Streams


async def test_of_senders_that_share_room_the_one_with_most_waiting_gives_up(monkeypatch):
    message = message_for("a0")
    monkeypatch.setattr(grpc_streams, "MOST_WAITING_BYTES", 9 * message.ByteSize())
    room, lost = SharedRoom(), []
    greedy, modest = [
        QueuedSender(lambda _, name=name: lost.append(name), room=room, farewell=600)
        for name in ("greedy", "modest")
    ]
    stuck = asyncio.Event()

    async def write(_):
        stuck.set()
        await asyncio.Event().wait()

    pumping = asyncio.create_task(greedy.pump(write))
    for _ in range(6):
        greedy.send(message)
    greedy.close()
    await stuck.wait()  # a message that is being written counts
    for _ in range(3):
        modest.send(message)
    before = list(lost)
    modest.send(message)
    with pytest.raises(TimeoutError):
        await pumping

    assert (before, lost, modest.waiting) == ([], ["greedy"], 4)
    assert room.is_full
    modest.drop()
    assert (room.is_full, room._senders) == (False, set())


async def test_a_sender_gives_up_an_end_that_reads_nothing_of_the_end():
    lost = []
    sender = QueuedSender(lost.append, TrialLimits(queued_messages=2).queued)
    stuck = asyncio.Event()

    async def write(_):
        stuck.set()
        await asyncio.Event().wait()

    pumping = asyncio.create_task(sender.pump(write))
    sender.send(message_for("a0"))
    await stuck.wait()
    for _ in range(3):
        sender.send(message_for("a0"))
    sender.send(message_for("a0"))
    sender.close()
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(TimeoutError):
            await pumping

    assert len(lost) == 1
    assert lost[0].startswith("it left 3 messages of ")


# Many


@pytest.mark.sweeps
async def test_mutated_messages_leave_an_intact_trial_and_nothing_behind(caplog):
    """Three hundred trials with messages that are almost right, in each state, and one intact."""
    chance = random.Random(14)

    async def mutated_environment(peer):
        first = await peer.hear_until("init")
        count = len(first.init_input.actors_in_trial)
        if first.init_input.impl_name == "intact":
            peer.lines.clear()
            peer.messages.clear()
            await peer.say(ready())
            await play_on(peer, count)
            return
        if chance.random() < 0.7:
            await peer.say(ready())
        if chance.random() < 0.7:
            await peer.say(observations(count))
        for _ in range(3):
            await peer.say(of_environment(chance, count))
        await peer.hear_until("END")

    async def play_on(peer, count):
        await peer.say(observations(count))
        while (message := await peer.hear()) is not None and message.state != 5:
            if message.HasField("action_set"):
                await peer.say(observations(count))
                if "LAST" in peer.lines:
                    await peer.say(EnvRunTrialOutput(state=4))

    async def mutated_actor(controls, trial_id, name):
        peer = controls.call(trial_id)
        try:
            await peer.say(joining(name) if chance.random() < 0.8 else of_actor(chance))
            if chance.random() < 0.5:
                await peer.hear_until("observation")
                await peer.say(action())
            for _ in range(3):
                await peer.say(of_actor(chance))
            if chance.random() < 0.3:
                peer.leave()
            await peer.hear_all()
        except (grpc.aio.AioRpcError, AssertionError, asyncio.InvalidStateError):
            pass  # it was lost, as it may be
        except asyncio.CancelledError:
            assert peer.stream.cancelled()
        finally:
            peer.leave()

    async def one(controls, programs):
        actors = [
            actor("a0", optional=chance.random() < 0.5, initial_connection_timeout=0.3),
            actor("a1", optional=True, response_timeout=0.3, initial_connection_timeout=0.3),
        ]
        trial_id = await controls.start(playing(programs, actors, max_inactivity=1))
        await asyncio.gather(*(mutated_actor(controls, trial_id, name) for name in ("a0", "a1")))
        await controls.terminate(trial_id, hard=True)

    before, tasks = len(list(Path("/proc/self/fd").iterdir())), asyncio.all_tasks()
    async with served(environment=mutated_environment) as (controls, programs):
        watching = await controls.watch()
        params = playing(programs, 1)
        params.environment.implementation = "intact"
        intact = await controls.start(params)
        playing_on = await controls.join(intact, "a0")
        task = asyncio.create_task(play_actor(playing_on))
        for _ in range(15):
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(*(one(controls, programs) for _ in range(20)))
        await controls.terminate(intact)
        async with asyncio.timeout(PATIENCE):
            await task
        live = [one for one in await controls.info() if one.state != 5]
        watching.cancel()

        assert playing_on.lines[-3] == "LAST"
        assert playing_on.lines[-1] == "END"
        assert playing_on.lines[1:-3] == [
            f"observation {tick} o" for tick in range(len(playing_on.lines) - 4)
        ]
        assert live == []
    gc.collect()

    assert await tasks_left(tasks) == set()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 8, "gRPC keeps some descriptors"
    assert unclean(caplog) == []
