"""A server of trials between environments, actors, hooks and controllers over gRPC."""

import asyncio
from functools import partial

import grpc
import pytest
from tests.driven_trial import (
    LAST_ACK,
    action,
    actor,
    joining,
    message_for,
    observations,
    ready,
    reward_for,
    slot,
    trial_params,
)
from tests.integration.trial_programs import (
    EVERY_STATE,
    PATIENCE,
    Collected,
    play_actor,
    play_environment,
    playing,
    refused,
    served,
)
from tests.waiting import tasks_left

from arkml.trials.core.error import TrialError
from arkml.trials.sdk import grpc_service
from arkml.trials.sdk.grpc_service import GrpcTrials
from arkml.trials.server.server import Server
from arkml.trials.server.server_options import TrialLimits, TrialsOptions
from arkml.trials.wire.actor_pb2 import ActorRunTrialOutput
from arkml.trials.wire.common_pb2 import (
    DatalogParams,
    SerializedMessage,
    StatusRequest,
    TrialState,
    VersionRequest,
)
from arkml.trials.wire.environment_pb2 import EnvRunTrialOutput
from arkml.trials.wire.lifecycle_pb2 import (
    TrialInfoRequest,
    TrialListRequest,
    TrialStartRequest,
)


def ending_after(ticks):
    async def play(peer):
        await play_environment(peer, ends_after=ticks)

    return play


def hooked(actors, **fields):
    """Options of a server whose trials have a hook."""

    def options(programs):
        params = playing(programs, actors)
        return TrialsOptions(params=params, hooks=(programs.endpoint,), **fields)

    return options


async def joined(controls, trial_id, names=("a0", "a1")):
    """Join as actors, which play; return their peers and tasks."""
    peers = [await controls.join(trial_id, name) for name in names]
    return peers, [asyncio.create_task(play_actor(peer)) for peer in peers]


async def all_done(tasks):
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*tasks)


# Whole trials


async def test_a_trial_that_its_environment_ends_has_every_state_once():
    async with served(environment=ending_after(3)) as (controls, programs):
        watching = await controls.watch()
        trial_id = await controls.start(playing(programs))
        peers, tasks = await joined(controls, trial_id)
        await all_done(tasks)

        assert await watching == EVERY_STATE
        assert peers[0].lines == [
            "init a0",
            "observation 0 o",
            "observation 1 o",
            "observation 2 o",
            "LAST",
            "observation 3 o",
            "END",
        ]
        assert programs.peers[0].trial_id == trial_id
        assert programs.peers[0].lines[:3] == ["init env", "actions 0 x|x", "actions 1 x|x"]
        assert await peers[0].hear() is None, "the stream ends after END"
        assert await peers[0].stream.code() is grpc.StatusCode.OK


async def end_of(peer):
    """Wait for the end of a peer that is no task of the test."""
    async with asyncio.timeout(PATIENCE):
        while peer.lines[-1] != "END":
            await asyncio.sleep(0.01)


async def test_a_trial_that_is_terminated_softly_has_every_state_once():
    async with served() as (controls, programs):
        watching = await controls.watch()
        trial_id = await controls.start(playing(programs))
        peers, tasks = await joined(controls, trial_id)
        await controls.reached(trial_id, "RUNNING")
        await controls.terminate(trial_id)
        await all_done(tasks)

        assert await watching == EVERY_STATE
        assert peers[1].lines[-3] == "LAST"
        assert peers[1].lines[-1] == "END"
        environment = programs.peers[0]
        await end_of(environment)
        assert environment.lines[-3] == "LAST"


async def test_a_hard_end_reaches_all_with_details():
    async with served() as (controls, programs):
        trial_id = await controls.start(playing(programs))
        peers, tasks = await joined(controls, trial_id)
        await controls.reached(trial_id, "RUNNING")
        await controls.terminate(trial_id, hard=True)
        await all_done(tasks)

        assert [peer.lines[-1] for peer in peers] == ["END the trial was terminated"] * 2
        assert await controls.state(trial_id) == "ENDED"


async def test_an_actor_that_acts_while_the_end_is_on_its_way_reads_it():
    async with served() as (controls, programs):
        trial_id = await controls.start(playing(programs, [actor("a0")]))
        peer = await controls.join(trial_id, "a0")
        await peer.hear_until("observation 0")
        await controls.terminate(trial_id, hard=True)
        await controls.reached(trial_id, "ENDED")
        await peer.say(action())
        await peer.hear_all()

        assert peer.lines[-1] == "END the trial was terminated"
        assert await peer.stream.code() is grpc.StatusCode.OK


async def test_service_actors_are_called_and_play():
    async with served(environment=ending_after(4)) as (controls, programs):
        actors = [actor("a0", endpoint=programs.endpoint), actor("a1")]
        trial_id = await controls.start(playing(programs, actors))
        _, tasks = await joined(controls, trial_id, ["a1"])
        await all_done(tasks)
        called = next(peer for peer in programs.peers if peer.lines[0] == "init a0")

        await end_of(called)
        assert called.trial_id == trial_id
        assert called.lines.count("LAST") == 1
        assert called.lines[-1] == "END"


async def test_rewards_and_messages_cross_between_all():
    async def environment(peer):
        await peer.hear_until("init")
        await peer.say(ready())
        await peer.say(observations(2))
        await peer.hear_until("message")
        await peer.say(EnvRunTrialOutput(state=1, message=message_for("player.*")))
        await peer.say(EnvRunTrialOutput(state=1, reward=reward_for("a1", (1, 0.5))))
        await peer.hear_until("actions")
        await peer.say(observations(2))
        await peer.hear_until("END")

    async with served(environment=environment) as (controls, programs):
        trial_id = await controls.start(playing(programs))
        first, second = [await controls.join(trial_id, name) for name in ("a0", "a1")]
        await first.hear_until("observation 0")
        await first.say(ActorRunTrialOutput(state=1, reward=reward_for("a1", (4, 1))))
        await first.say(ActorRunTrialOutput(state=1, message=message_for("env")))
        await first.hear_until("message 0 env > player.*")
        await first.say(action())
        await second.say(action())
        await second.hear_until("observation 1")
        await controls.terminate(trial_id, hard=True)

        assert second.lines[-3:] == ["message 0 env > player.*", "reward 0 3", "observation 1 o"]


async def test_trials_run_side_by_side():
    async with served(environment=ending_after(5)) as (controls, programs):
        ids = [await controls.start(playing(programs)) for _ in range(8)]
        tasks = []
        for trial_id in ids:
            tasks += (await joined(controls, trial_id))[1]
        await all_done(tasks)
        for trial_id in ids:
            await controls.reached(trial_id, "ENDED")

        assert len(set(ids)) == 8


# Joining


async def test_actors_join_by_name_or_class_once():
    async with served() as (controls, programs):
        trial_id = await controls.start(playing(programs, 3))
        first = await controls.join(trial_id, actor_class="player")
        again = controls.call(trial_id)
        await again.say(joining("a0"))

        assert first.lines == ["init a0"]
        async with refused("no free slot for an actor 'a0': it is taken"):
            await again.hear_all()


@pytest.mark.parametrize(
    ("ids", "first", "sentence"),
    [
        (["nothing"], joining("a0"), "there is no trial 'nothing'"),
        ([], joining("a0"), "an actor joins one trial, not 0"),
        (["b", "c"], joining("a0"), "an actor joins one trial, not 2"),
        (["b, c"], joining("a0"), "an actor joins one trial, not 2"),
        (["b"], joining("a9"), "trial b has no actor 'a9'"),
        (["b"], joining(actor_class="judge"), "trial b has no actor of class 'judge'"),
        (["b"], joining(), "by the name of its slot or by its class"),
        (["b"], action(), "first message of an actor is to be its init_output"),
        (["b"], ActorRunTrialOutput(state=5), "first message of an actor is to be"),
        (["b"], joining("a" * 100_000), "trial b has no actor 'aaa"),
    ],
)
async def test_a_join_that_cannot_be_is_refused_with_a_reason(ids, first, sentence):
    async with served() as (controls, programs):
        await controls.start(playing(programs), trial_id_requested="b")
        peer = controls.call(*ids)

        async with refused(sentence):
            await peer.say(first)
            await peer.hear_all()


async def test_an_actor_that_leaves_before_its_first_message_is_refused():
    async with served() as (controls, programs):
        peer = controls.call(await controls.start(playing(programs)))
        await peer.stream.done_writing()

        async with refused("first message of an actor is to be its init_output"):
            await peer.hear_all()


async def test_actors_join_only_while_a_trial_is_pending():
    async with served() as (controls, programs):
        trial_id = await controls.start(playing(programs, 1))
        peer = await controls.join(trial_id, "a0")
        await controls.reached(trial_id, "RUNNING")
        late, later = controls.call(trial_id), controls.call(trial_id)
        await late.say(joining("a0"))
        async with refused("is RUNNING: actors join while it is PENDING"):
            await late.hear_all()
        await controls.terminate(trial_id, hard=True)
        await later.say(joining("a0"))
        async with refused("has ended"):
            await later.hear_all()

        assert (await peer.hear_until("END")).details == "the trial was terminated"


async def test_a_join_waits_while_hooks_are_called():
    called, answer = asyncio.Event(), asyncio.Event()

    async def hook(request, _):
        called.set()
        await answer.wait()
        return request

    async with served(hooked(1), hook=hook) as (controls, _):
        starting = asyncio.create_task(controls.start(trial_id_requested="b"))
        await called.wait()
        peer = controls.call("b")
        await peer.say(joining("a0"))
        state = await controls.state("b")
        answer.set()
        await peer.hear_until("init a0")

        assert state == "INITIALIZING"
        assert await starting == "b"


async def test_a_join_that_waits_is_refused_when_the_trial_ends():
    called = asyncio.Event()

    async def hook(*_):
        called.set()
        await asyncio.Event().wait()

    async with served(hooked(1), hook=hook) as (controls, _):
        starting = asyncio.create_task(controls.start(trial_id_requested="b"))
        await called.wait()
        peer = controls.call("b")
        await peer.say(joining("a0"))
        await controls.state("b")
        await controls.terminate("b", hard=True)

        async with refused("b is ENDED: actors join while it is PENDING|b has ended"):
            await peer.hear_all()
        async with refused("the trial was terminated"):
            await starting


async def test_actors_of_the_same_process_join_without_sockets():
    async with served(environment=ending_after(1)) as (controls, programs):
        trials = controls.server.trials
        trial_id = await controls.start(playing(programs, 1))
        sender = Collected()
        receiver = await trials.join(trial_id, slot("a0"), sender)
        await controls.reached(trial_id, "RUNNING")
        receiver.receive(action())
        await controls.reached(trial_id, "TERMINATING")
        while "observation 1 o" not in sender.lines:
            await controls.state(trial_id)
        receiver.receive(ActorRunTrialOutput(state=LAST_ACK))
        await controls.reached(trial_id, "ENDED")

        assert sender.lines == ["init a0", "observation 0 o", "LAST", "observation 1 o", "END"]
        assert sender.is_closed
        with pytest.raises(TrialError, match="has ended"):
            await trials.join(trial_id, slot("a0"), Collected())
        with pytest.raises(TrialError, match="there is no trial 'b'"):
            await trials.join("b", slot("a0"), Collected())


# Starting


async def test_hooks_are_called_in_order_and_each_sees_what_the_former_did():
    async def hook(request, _):
        step = len(request.params.properties)
        request.params.properties[f"step {step}"] = request.params.trial_config.content.decode()
        request.params.max_steps += 1
        return request

    def options(programs):
        params = playing(programs, 1, properties={})
        return TrialsOptions(params=params, hooks=(programs.endpoint, programs.endpoint))

    async with served(options, hook=hook) as (controls, programs):
        reply = await controls.lifecycle.StartTrial(
            TrialStartRequest(config=SerializedMessage(content=b"c"), user_id="ada")
        )
        info = (await controls.info(reply.trial_id))[0]
        calls = [
            (metadata["trial-id"], metadata["user-id"], dict(params.properties), params.max_steps)
            for metadata, params in programs.calls
        ]

        assert calls == [
            (reply.trial_id, "ada", {}, 0),
            (reply.trial_id, "ada", {"step 0": "c"}, 1),
        ]
        assert dict(info.properties) == {"step 0": "c", "step 1": "c"}


async def test_parameters_of_a_start_pass_by_defaults_and_hooks():
    async with served(hooked(3)) as (controls, programs):
        trial_id = await controls.start(playing(programs, 1))
        info = await controls.info(trial_id, get_actor_list=True)

        assert [one.name for one in info[0].actors_in_trial] == ["a0"]
        assert programs.calls == []


async def failing(*_):
    raise ValueError("no such level")


async def spoiling(request, _):
    request.params.actors[0].endpoint = "nowhere"
    return request


async def silent(*_):
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("hook", "sentence"),
    [
        (failing, r"Pre-trial hook failure \[127.0.0.1:\d+ failed: UNKNOWN: .*no such level"),
        (spoiling, "endpoint 'nowhere' is not one of"),
        (silent, r"Pre-trial hook failure \[grpc://127.0.0.1:\d+ did not answer within 0.2 s"),
    ],
)
async def test_a_hook_that_fails_fails_the_start(hook, sentence):
    limits = TrialLimits(hook_seconds=0.2)
    async with served(hooked(1, limits=limits), hook=hook) as (controls, _):
        async with refused(sentence):
            await controls.start(trial_id_requested="b")

        assert await controls.state("b") == "ENDED"


async def test_a_hook_that_is_not_there_fails_the_start():
    def options(programs):
        return TrialsOptions(params=playing(programs), hooks=("grpc://127.0.0.1:1",))

    sentence = r"Pre-trial hook failure \[127.0.0.1:1 failed: UNAVAILABLE"
    async with served(options) as (controls, _), refused(sentence):
        await controls.start()


@pytest.mark.parametrize("endpoint", ["cogment://client", "http://localhost:1", ""])
def test_hooks_are_at_endpoints_that_can_be_called(endpoint):
    with pytest.raises(TrialError, match="endpoint"):
        TrialsOptions(hooks=(endpoint,))


async def test_a_trial_that_ends_as_its_hooks_have_answered_takes_no_room(monkeypatch):
    async def hook(request, _):
        return request

    async with served(hooked(1), hook=hook) as (controls, _):
        orchestrator = controls.server.orchestrator
        hooks = orchestrator._hooked

        async def ended_at_once(trial, request):
            params = await hooks(trial, request)
            loop = asyncio.get_running_loop()
            loop.call_soon(partial(orchestrator.live(trial.id).terminate, is_hard=True))
            return params

        monkeypatch.setattr(orchestrator, "_hooked", ended_at_once)
        async with refused("trial b: the trial was terminated"):
            await controls.start(trial_id_requested="b")
        (ended,) = orchestrator._ended.values()

        assert orchestrator._kept._used == ended.size


async def test_details_of_more_trials_than_fit_into_a_message_are_refused():
    limits = TrialLimits(message_bytes=100_000)
    async with served(lambda _: TrialsOptions(limits=limits)) as (controls, programs):
        for number in range(3):
            params = playing(programs, properties={"text": "x" * 40_000})
            await controls.start(params, trial_id_requested=f"{number}")
        async with refused("the details of 3 trials take more than 100000 bytes, .*trial-id"):
            await controls.info()

        assert [one.trial_id for one in await controls.info("0", "2")] == ["0", "2"]


async def test_a_user_may_have_any_name():
    async def hook(request, _):
        return request

    async with served(hooked(1), hook=hook) as (controls, programs):
        for user in ("", "Zoë\n\0", "x" * 300):
            await controls.start(user_id=user)

        assert [metadata["user-id"] for metadata, _ in programs.calls] == [
            "",
            "Zo%C3%AB%0A%00",
            "x" * 300,
        ]


async def test_a_requested_id_is_given_once():
    async with served() as (controls, programs):
        params = playing(programs)
        first = await controls.start(params, trial_id_requested="b")
        second = await controls.start(params, trial_id_requested="b")
        await controls.terminate("b", hard=True)
        third = await controls.start(params, trial_id_requested="b")
        other = await controls.start(params)

        assert (first, second, third) == ("b", "", "")
        assert len(other) == 36


@pytest.mark.parametrize("wanted", ["a,b", " b", "b ", " ", "b\n", "é", "b" * 257])
async def test_an_id_that_metadata_cannot_carry_is_refused(wanted):
    async with served() as (controls, programs):
        async with refused("cannot be the id of a trial"):
            await controls.start(playing(programs), trial_id_requested=wanted)

        assert await controls.info() == []


async def test_wrong_parameters_are_refused_without_a_trace():
    wrong = [
        (trial_params([]), "the parameters have no actors"),
        (trial_params([actor("a0", "judge")]), "unknown class 'judge'; known: player"),
        (
            trial_params(1, datalog=DatalogParams(endpoint="cogment://client")),
            "the datalog has the endpoint 'cogment://client': it is called at grpc://HOST:PORT",
        ),
    ]
    async with served(lambda _: TrialsOptions(classes=("player",))) as (controls, _):
        for params, sentence in wrong:
            async with refused(sentence):
                await controls.start(params)

        assert await controls.info() == []


async def test_live_trials_have_a_limit():
    limits = TrialLimits(live_trials=2)
    async with served(lambda _: TrialsOptions(limits=limits)) as (controls, programs):
        first = await controls.start(playing(programs))
        await controls.start(playing(programs))
        async with refused("there are 2 trials already, the most that may be"):
            await controls.start(playing(programs))
        await controls.terminate(first, hard=True)

        assert await controls.start(playing(programs))


# What controllers ask


async def test_info_is_of_all_trials_or_of_those_that_are_named():
    async with served(environment=ending_after(2)) as (controls, programs):
        params = playing(programs, 1, properties={"k": "v"})
        params.environment.name = "world"
        first, second = [await controls.start(params) for _ in range(2)]
        _, tasks = await joined(controls, first, ["a0"])
        await all_done(tasks)
        await controls.reached(first, "ENDED")
        bare = (await controls.info(first))[0]
        full = (await controls.info(first, get_latest_observation=True, get_actor_list=True))[0]
        pending = (await controls.info(second, get_latest_observation=True))[0]

        assert {one.trial_id for one in await controls.info()} == {first, second}
        assert {one.trial_id for one in await controls.info(f"{first}, {second}")} == {
            first,
            second,
        }
        assert await controls.info("nothing") == []
        assert (bare.state, bare.tick_id, bare.env_name) == (TrialState.ENDED, 2, "world")
        assert dict(bare.properties) == {"k": "v"}
        assert bare.trial_duration > 0
        assert not bare.HasField("latest_observation")
        assert list(bare.actors_in_trial) == []
        assert full.latest_observation.tick_id == 2
        assert list(full.latest_observation.observations) == [b"o"]
        assert [(one.name, one.actor_class) for one in full.actors_in_trial] == [("a0", "player")]
        assert full.trial_duration == bare.trial_duration
        assert not pending.HasField("latest_observation")


async def test_watching_begins_with_present_states():
    async with served() as (controls, programs):
        params = playing(programs, 1)
        first, second = [await controls.start(params) for _ in range(2)]
        await controls.terminate(first, hard=True)
        entries = []
        async for entry in controls.lifecycle.WatchTrials(TrialListRequest()):
            entries.append((entry.trial_id, TrialState.Name(entry.state), entry.HasField("info")))
            if len(entries) == 2:
                await controls.terminate(second, hard=True)
            if len(entries) == 3:
                break

        assert entries == [
            (first, "ENDED", False),
            (second, "PENDING", False),
            (second, "ENDED", False),
        ]


async def test_watching_may_be_for_some_states_with_all_that_is_known():
    async with served() as (controls, programs):
        filtered = TrialListRequest(filter=[TrialState.PENDING, TrialState.ENDED], full_info=True)
        call = controls.lifecycle.WatchTrials(filtered)
        params = playing(programs, 1, properties={"k": "v"})
        trial_id = await controls.start(params)
        first = await call.read()
        await controls.terminate(trial_id, hard=True)
        second = await call.read()

        assert (first.state, second.state) == (TrialState.PENDING, TrialState.ENDED)
        assert first.info.trial_id == trial_id
        assert first.info.state == TrialState.PENDING
        assert dict(first.info.properties) == {"k": "v"}


async def test_ended_trials_are_forgotten_after_some_others():
    limits = TrialLimits(ended_kept=2)
    async with served(lambda _: TrialsOptions(limits=limits)) as (controls, programs):
        ids = [await controls.start(playing(programs)) for _ in range(4)]
        for trial_id in ids:
            await controls.terminate(trial_id, hard=True)

        assert [one.trial_id for one in await controls.info()] == ids[2:]
        async with refused(f"there is no trial '{ids[0]}'"):
            await controls.terminate(ids[0])
        assert await controls.start(playing(programs), trial_id_requested=ids[0]) == ids[0]


async def test_termination_names_its_trials():
    async with served() as (controls, programs):
        first, second = [await controls.start(playing(programs)) for _ in range(2)]
        async with refused("no trial is named"):
            await controls.terminate()
        async with refused("there is no trial 'nothing'"):
            await controls.terminate(first, "nothing")
        untouched = await controls.state(first)
        await controls.terminate(first, second)
        await controls.terminate(first, second, hard=True)

        assert untouched == "PENDING"
        assert [await controls.state(one) for one in (first, second)] == ["ENDED", "ENDED"]


async def test_the_server_tells_its_versions_and_statuses():
    async with served(lambda _: TrialsOptions(limits=TrialLimits(live_trials=4))) as (
        controls,
        programs,
    ):
        await controls.start(playing(programs))
        reply = await controls.lifecycle.Version(VersionRequest())
        same = await controls.actors.Version(VersionRequest())
        everything = await controls.lifecycle.Status(StatusRequest(names=["*"]))
        load = await controls.actors.Status(StatusRequest(names=["overall_load", "nothing"]))
        nothing = await controls.lifecycle.Status(StatusRequest())

        assert {"orchestrator", "cogment-api", "grpc"} <= {one.name for one in reply.versions}
        assert all(one.version for one in reply.versions)
        assert same == reply
        assert dict(everything.statuses) == dict(load.statuses) == {"overall_load": "25"}
        assert dict(nothing.statuses) == {}


# Ports


async def test_ports_may_be_two_and_free_ones_are_found():
    async with Server() as server:
        lifecycle, actors = await server.listen("127.0.0.1", 0, None)
        async with Server() as other:
            with pytest.raises(TrialError, match=f"127.0.0.1:{lifecycle} cannot be listened at"):
                await other.listen("127.0.0.1", lifecycle)

    assert lifecycle == actors > 0


async def test_a_port_in_use_leaves_no_other_port_open():
    async with Server() as server, Server() as other, Server() as third:
        taken, _ = await server.listen("127.0.0.1", 0)
        free, _ = await third.listen("127.0.0.1", 0)
        await third.close()
        with pytest.raises(TrialError, match=f"127.0.0.1:{taken} cannot be listened at"):
            await other.listen("127.0.0.1", free, taken)

        assert await other.listen("127.0.0.1", free) == (free, free)


# The end of the server


async def test_closing_a_server_ends_its_trials_softly():
    async with served() as (controls, programs):
        trial_id = await controls.start(playing(programs))
        peers, tasks = await joined(controls, trial_id)
        await controls.reached(trial_id, "RUNNING")
        await controls.server.close()
        await all_done(tasks)

        assert peers[0].lines[-1] == "END"
        assert peers[0].lines[-3] == "LAST"


async def test_closing_a_server_ends_trials_that_do_not_leave():
    async def stuck(peer):
        await peer.hear_until("END")

    async with served() as (controls, programs):
        trial_id = await controls.start(playing(programs))
        peers = [await controls.join(trial_id, name) for name in ("a0", "a1")]
        tasks = [asyncio.create_task(stuck(peer)) for peer in peers]
        await controls.reached(trial_id, "RUNNING")
        await controls.server.close(0.2)
        await all_done(tasks)

        assert [peer.lines[-1] for peer in peers] == ["END the server is ending"] * 2


async def test_closing_a_server_while_a_trial_starts_leaves_nothing():
    called = asyncio.Event()

    async def hook(*_):
        called.set()
        await asyncio.Event().wait()

    before = asyncio.all_tasks()
    async with served(hooked(1), hook=hook) as (controls, _):
        trials = controls.server.trials
        request = TrialStartRequest(user_id="u", trial_id_requested="b")
        starting = asyncio.create_task(trials.start(request))
        await called.wait()
        waiting = asyncio.create_task(trials.join("b", slot("a0"), Collected()))
        await controls.state("b")
        await controls.server.close()
        failures = await asyncio.gather(starting, waiting, return_exceptions=True)

        assert [type(one) for one in failures] == [TrialError, TrialError]
        assert (await trials.info([], TrialInfoRequest())).trial[0].state == TrialState.ENDED
        with pytest.raises(TrialError, match="the server is ending: it starts no trials"):
            await trials.start(request)

    assert await tasks_left(before) == set()


async def test_closing_a_server_again_does_nothing():
    async with served() as (controls, programs):
        await controls.start(playing(programs))
        await controls.server.close()
        await controls.server.close()


PROXIES = ("grpc_proxy", "http_proxy", "https_proxy")


def set_proxies(monkeypatch):
    for name in PROXIES:
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)


async def test_servers_and_parts_on_this_machine_are_asked_without_a_proxy(monkeypatch):
    async with served() as (controls, programs):
        await controls.start(playing(programs))
        set_proxies(monkeypatch)
        await controls.start(playing(programs))
        await controls.server.close()
    async with Server() as server:
        port, _ = await server.listen("127.0.0.1", 0)
        trials, away = GrpcTrials(f"127.0.0.1:{port}"), GrpcTrials("server.invalid:9000")
        try:
            found = await trials.info([], TrialInfoRequest())
            with pytest.raises(TrialError) as told:
                await away.info([], TrialInfoRequest())
        finally:
            await trials.close()
            await away.close()

    assert len(found.trial) == 0
    assert str(told.value).endswith(
        "; it was asked by the proxy of grpc_proxy (no_proxy names hosts without one)"
    )


ASKED = {
    "info": lambda trials: trials.info([], TrialInfoRequest()),
    "start": lambda trials: trials.start(TrialStartRequest()),
    "terminate": lambda trials: trials.terminate(["t"], is_hard=False),
    "versions": lambda trials: trials.versions(),
    "describe": lambda trials: trials.describe(),
}


@pytest.mark.parametrize("what", ASKED)
async def test_a_server_that_takes_a_request_and_never_answers_is_given_up(monkeypatch, what):
    monkeypatch.setattr(grpc_service, "_ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(grpc_service, "_START_SECONDS", 0.2)

    async def never(*_):
        await asyncio.Event().wait()

    class Silent(grpc.GenericRpcHandler):
        def service(self, _):
            return grpc.unary_unary_rpc_method_handler(never)

    server = grpc.aio.server(handlers=[Silent()])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    trials = GrpcTrials(f"127.0.0.1:{port}")
    try:
        with pytest.raises(TrialError, match=f"at 127.0.0.1:{port} has not answered in time"):
            await ASKED[what](trials)
    finally:
        await trials.close()
        await server.stop(None)
