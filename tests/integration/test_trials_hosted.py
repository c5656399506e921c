"""Hosted trials of a server in this process: their environments, people who play, and views."""

import asyncio
import contextlib

import pytest
from tests.driven_trial import action, actor, hosted_params, slot, standing_by, trial_params
from tests.hosted_trials import (
    PATIENCE,
    REFUSED,
    UNOPENED,
    CountingHosting,
    Person,
    config,
)

from arkml.trials import Server, TrialError, TrialsOptions
from arkml.trials.core.error import ActorTaken
from arkml.trials.core.hosting import ActionNote, Pacing
from arkml.trials.datalog.datalog import Datalog
from arkml.trials.datalog.reader import DatalogReader
from arkml.trials.datalog.samples import samples
from arkml.trials.server.server_options import TrialLimits
from arkml.trials.wire.actor_pb2 import ActorRunTrialOutput
from arkml.trials.wire.common_pb2 import CommunicationState, EnvironmentParams, TrialState
from arkml.trials.wire.lifecycle_pb2 import (
    TrialInfoRequest,
    TrialListRequest,
    TrialStartRequest,
)
from arkml.trials.wire.players_pb2 import PlayerKind

LAST_ACK = CommunicationState.LAST_ACK


def within_time(test):
    """Run a coroutine function as a test that does not hang."""

    def run(**fixtures):
        asyncio.run(asyncio.wait_for(test(**fixtures), PATIENCE))

    run.__name__ = test.__name__
    return run


class Played:
    """A server that hosts trials, and one of them."""

    def __init__(self, hosting, options=None, trial_log=None):
        self.hosting = hosting
        self.server = Server(options, trial_log=trial_log, hosting=hosting)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.server.close(0)

    @property
    def environment(self):
        return self.hosting.environments[-1]

    async def start(self, params=None, trial_id="t", user="owner"):
        request = TrialStartRequest(
            params=params or hosted_params(), trial_id_requested=trial_id, user_id=user
        )
        return (await self.server.trials.start(request)).trial_id

    async def ended(self, trial_id="t"):
        """Wait for the end of a trial; return its reason."""
        request = TrialListRequest(filter=[TrialState.ENDED])
        async with contextlib.aclosing(self.server.trials.watch(request)) as entries:
            async for entry in entries:
                if entry.trial_id == trial_id:
                    return self.server.orchestrator._ended[trial_id].reason
        raise AssertionError("the server was closed")

    async def take_over(self, name="a0", user="ann", trial_id="t"):
        person = Person()
        players = self.server.players
        person.receiver = await players.take_over(trial_id, slot(name), user, person)
        return person

    def trial(self, trial_id="t"):
        return self.server.orchestrator.live(trial_id).trial


STEPPED = {"is_stepped": True}


# Environments


@within_time
async def test_a_hosted_trial_runs_to_its_end_without_a_player():
    async with Played(CountingHosting(ends_after=50)) as played:
        await played.start()
        reason = await played.ended()
        environment = played.environment

    assert reason == ""
    assert len(environment.acted) == 50
    assert {one.note for acted in environment.acted for one in acted} == {ActionNote.STAND_IN}
    assert environment.lines == ["init env", "END"]
    assert environment.lost == ["the trial ended the stream"]


def test_the_log_has_the_origin_of_each_action_and_the_events_of_people(tmp_path):
    async def play():
        with Datalog(tmp_path) as log:
            async with Played(CountingHosting(**STEPPED), trial_log=log) as played:
                await played.start(hosted_params([actor("a0"), standing_by("a1")]))
                client = Person()
                client.receiver = await played.server.trials.join("t", slot("a0"), client)
                played.environment.step()
                person = await played.take_over("a1", "ann")
                client.receiver.receive(action(b"c"))
                person.receiver.receive(action(b"p"))
                played.environment.step()
                person.receiver.lose("it left")
                client.receiver.receive(action(b"c"))

    asyncio.run(asyncio.wait_for(play(), PATIENCE))
    with DatalogReader(tmp_path) as reader:
        (trial,) = reader.named("t")
        ticks = list(samples(reader, trial, reader.params(trial)))

    assert [tick.actions for tick in ticks] == [
        {"a0": (b"c", "given", "owner"), "a1": (b"p", "given", "ann")},
        {"a0": (b"c", "given", "owner"), "a1": (b"s", "stand-in", "v")},
    ]
    assert ticks[0].events == ["actor 'a1' of 'ann' was taken over"]
    assert ticks[1].events[0] == "actor 'a1' of 'ann' was handed back: it left"


@within_time
async def test_a_trial_that_is_started_with_a_configuration_is_completed():
    options = TrialsOptions(params=hosted_params(0))
    async with Played(CountingHosting(**STEPPED), options) as played:
        request = TrialStartRequest(config=config(b"seed 7"), trial_id_requested="t")
        await played.server.trials.start(request)
        reply = await played.server.trials.info(["t"], TrialInfoRequest(get_actor_list=True))

    assert played.environment.params_config == b"seed 7"
    assert [one.name for one in reply.trial[0].actors_in_trial] == ["a0", "a1"]


@within_time
async def test_a_trial_that_is_started_with_parameters_is_completed():
    params = hosted_params(3, trial_config=config(b"seed 8"))
    async with Played(CountingHosting(**STEPPED)) as played:
        await played.start(params)

    assert played.environment.params_config == b"seed 8"


@within_time
async def test_parameters_that_the_guest_cannot_have_start_nothing():
    async with Played(CountingHosting(**STEPPED)) as played:
        with pytest.raises(TrialError, match="the guest cannot have this configuration"):
            await played.start(hosted_params(trial_config=config(REFUSED)))
        reply = await played.server.trials.info([], TrialInfoRequest())

    assert list(reply.trial) == []
    assert played.hosting.environments == []


@within_time
async def test_an_environment_that_cannot_be_opened_ends_its_trial_with_the_reason():
    class Closed(CountingHosting):
        def open(self, trial):
            raise TrialError(f"no thread is left for {trial.trial_id}")

    async with Played(Closed()) as played:
        await played.start()
        reason = await played.ended()

    assert reason == "the environment was lost: no thread is left for t"


@within_time
async def test_an_environment_ends_its_own_trial_with_details_and_no_other():
    async with Played(CountingHosting(**STEPPED)) as played:
        await played.start(trial_id="other")
        await played.start(hosted_params(trial_config=config(UNOPENED)))
        reason = await played.ended()
        played.hosting.environments[0].step()
        other = played.trial("other").state

    assert reason == "the environment was lost: no guest"
    assert other == TrialState.RUNNING


@within_time
async def test_an_environment_that_ends_its_stream_ends_its_trial():
    async with Played(CountingHosting(**STEPPED)) as played:
        await played.start()
        played.environment.step()
        played.environment.trial.lose("the environment ended its stream")
        reason = await played.ended()

    assert reason == "the environment was lost: the environment ended its stream"
    assert played.environment.lost == ["the trial ended the stream"]


@within_time
async def test_a_server_that_closes_ends_hosted_trials_softly():
    played = Played(CountingHosting())
    await played.start()
    await played.environment.until_acted(3)
    await played.server.close()
    lines = played.environment.lines

    assert lines == ["init env", "LAST", "END"]


@pytest.mark.parametrize("implementation", ["", "other"])
def test_other_environments_of_a_server_that_hosts_trials_are_not_hosted(implementation):
    async def play():
        environment = EnvironmentParams(endpoint="local://", implementation=implementation)
        async with Played(CountingHosting()) as played:
            await played.start(trial_params([actor("a0")], environment=environment))
            await played.server.trials.join("t", slot("a0"), Person())
            assert played.hosting.environments == []
            return await played.ended()

    reason = asyncio.run(asyncio.wait_for(play(), PATIENCE))

    assert reason == (
        "the environment was lost: nothing is registered with this server: local:// names nothing"
    )


@within_time
async def test_a_server_without_a_hosting_hosts_nothing():
    async with Server() as server:
        request = TrialStartRequest(params=hosted_params([actor()]), trial_id_requested="t")
        await server.trials.start(request)
        trial = server.orchestrator.live("t").trial
        with pytest.raises(TrialError, match="this server hosts no trials"):
            await server.players.describe()

    assert trial.hosted is None


@within_time
async def test_ticks_leave_at_the_rate_of_the_hosting():
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with Played(CountingHosting(Pacing(rate=100), ends_after=10)) as played:
        await played.start()
        await played.ended()

    assert loop.time() - began >= 0.099
    assert len(played.environment.acted) == 10


# People


@within_time
async def test_a_person_plays_in_a_trial_that_runs_and_hands_back():
    async with Played(CountingHosting(**STEPPED)) as played:
        await played.start()
        played.environment.step()
        person = await played.take_over("a1")
        first = list(person.lines)
        played.environment.step()
        person.receiver.receive(action(b"p"))
        played.environment.step()
        person.receiver.lose("it closed its page")
        played.environment.step()
        notes = [[one.note.value for one in acted] for acted in played.environment.acted]

    assert first == ["init a1", "observation 0 0"]
    assert person.lines[2:4] == ["observation 1 1", "observation 2 2"]
    assert notes == [
        ["stand-in", "stand-in"],
        ["stand-in", "given"],
        ["stand-in", "stand-in"],
        ["stand-in", "stand-in"],
    ]
    assert played.environment.acted[1][1].origin == "ann"
    assert person.is_closed


@within_time
async def test_of_two_people_who_take_one_actor_over_at_once_one_gets_it():
    async with Played(CountingHosting(**STEPPED)) as played:
        await played.start()
        played.environment.step()
        first, second = await asyncio.gather(
            played.take_over("a0", "ann"), played.take_over("a0", "ben"), return_exceptions=True
        )

    assert isinstance(first, Person)
    assert isinstance(second, ActorTaken)


@within_time
async def test_a_stream_that_has_ended_does_not_touch_the_next_player_of_its_actor():
    async with Played(CountingHosting(Pacing(away=0), **STEPPED)) as played:
        await played.start(hosted_params(1))
        played.environment.step()
        first = await played.take_over("a0", "ann")
        played.environment.step()
        await played.environment.until_acted(2)  # ann is away at once
        second = await played.take_over("a0", "ben")
        first.receiver.receive(ActorRunTrialOutput(state=LAST_ACK))
        first.receiver.lose("it closed its page")
        played.environment.step()
        person = played.trial().view().players[0]

    assert first.lines[-1] == "END 'ben' took it over"
    assert first.is_closed
    assert second.lines[:3] == ["init a0", "observation 1 1", "observation 2 2"]
    assert person.name == "ben"


@within_time
async def test_people_wait_until_a_trial_has_its_parameters():
    async with Played(CountingHosting(**STEPPED), TrialsOptions(params=hosted_params(1))) as played:

        async def start():
            await played.server.trials.start(TrialStartRequest(trial_id_requested="t"))

        starting = asyncio.create_task(start())
        await asyncio.sleep(0)
        person = await played.take_over()
        await starting

    assert person.lines[0] == "init a0"


@within_time
async def test_the_last_observations_reach_a_person_who_acknowledges_them():
    async with Played(CountingHosting(ends_after=3, **STEPPED)) as played:
        await played.start(hosted_params(1))
        played.environment.step()
        person = await played.take_over()
        for _ in range(2):
            played.environment.step()
            person.receiver.receive(action())
        played.environment.step()
        is_early = played.trial().is_over
        person.receiver.receive(ActorRunTrialOutput(state=LAST_ACK))
        reason = await played.ended()

    assert not is_early
    assert reason == ""
    assert person.lines[-3:] == ["LAST", "observation 3 3", "END"]


@within_time
async def test_a_client_of_cogments_protocol_sees_nothing_of_take_overs():
    async with Played(CountingHosting(**STEPPED)) as played:
        await played.start(hosted_params([actor("a0"), standing_by("a1")]))
        client = Person()
        client.receiver = await played.server.trials.join("t", slot("a0"), client)
        played.environment.step()
        person = await played.take_over("a1")
        person.receiver.lose("it left")
        client.receiver.receive(action())
        played.environment.step()

    assert client.lines[:3] == ["init a0", "observation 0 0", "observation 1 1"]


@within_time
async def test_an_unknown_an_ended_and_another_trial_cannot_be_taken_over():
    async with Played(CountingHosting(ends_after=1)) as played:
        await played.start()
        await played.ended()
        await played.start(trial_params([actor("a0")]), "plain")

        with pytest.raises(TrialError, match="there is no trial 'x'"):
            await played.take_over(trial_id="x")
        with pytest.raises(TrialError, match="trial t has ended"):
            await played.take_over()
        with pytest.raises(TrialError, match="trial plain is not hosted"):
            await played.take_over(trial_id="plain")


@pytest.mark.parametrize("user", ["x" * 65, "a\nb"])
def test_a_name_of_a_person_that_cannot_be_shown_is_refused(user):
    async def play():
        async with Played(CountingHosting(**STEPPED)) as played:
            await played.start()
            with pytest.raises(TrialError, match="is not the name of a person"):
                await played.take_over(user=user)

    asyncio.run(asyncio.wait_for(play(), PATIENCE))


@within_time
async def test_the_people_of_one_trial_are_limited():
    options = TrialsOptions(limits=TrialLimits(people=1))
    async with Played(CountingHosting(**STEPPED), options) as played:
        await played.start()
        person = await played.take_over("a0")
        with pytest.raises(TrialError, match="1 people play in trial t, the most of one trial"):
            await played.take_over("a1")
        person.receiver.lose("it left")
        other = await played.take_over("a1")

    assert other.lines[0] == "init a1"


# Views


@within_time
async def test_one_who_looks_gets_the_present_tick_and_then_each_that_follows():
    async with Played(CountingHosting(**STEPPED)) as played:
        await played.start()
        played.environment.step()
        seen = []
        async with contextlib.aclosing(played.server.players.look("t")) as views:
            async for view in views:
                seen.append(view)
                if len(seen) == 3:
                    break
                played.environment.step()
        was_shown = played.trial().hosted.is_shown

    assert [view.tick_id for view in seen] == [0, 1, 2]
    assert list(seen[2].observations.observations) == [b"2"]
    assert list(seen[2].actions) == [b"s", b"s"]
    assert [one.kind for one in seen[2].players] == [PlayerKind.STAND_IN] * 2
    assert not was_shown


@within_time
async def test_a_slow_reader_gets_only_the_newest_view_and_then_the_end():
    async with Played(CountingHosting(**STEPPED)) as played:
        await played.start()
        played.environment.step()
        async with contextlib.aclosing(played.server.players.look("t")) as views:
            seen = [await anext(views)]
            for _ in range(100):
                played.environment.step()
            seen.append(await anext(views))
            for _ in range(3):
                played.environment.step()
            await played.server.trials.terminate(["t"], is_hard=True)
            seen += [view async for view in views]

    assert [(view.tick_id, view.state) for view in seen] == [
        (0, TrialState.RUNNING),
        (100, TrialState.RUNNING),
        (103, TrialState.ENDED),
    ]
    assert seen[-1].reason == "the trial was terminated"


@within_time
async def test_only_live_hosted_trials_can_be_looked_at():
    async with Played(CountingHosting(ends_after=1)) as played:
        await played.start()
        await played.ended()
        await played.start(trial_params([actor("a0")]), "plain")

        for trial_id, text in (
            ("x", "there is no trial 'x'"),
            ("t", "trial t has ended"),
            ("plain", "trial plain is not hosted: it cannot be looked at"),
        ):
            with pytest.raises(TrialError, match=text):
                await anext(played.server.players.look(trial_id))


@within_time
async def test_those_who_look_at_one_trial_are_limited():
    options = TrialsOptions(limits=TrialLimits(lookers=1))
    async with Played(CountingHosting(**STEPPED), options) as played:
        await played.start()
        async with contextlib.aclosing(played.server.players.look("t")) as views:
            await anext(views)
            with pytest.raises(TrialError, match="1 look at trial t already, the most of one tri"):
                await anext(played.server.players.look("t"))
        async with contextlib.aclosing(played.server.players.look("t")) as views:
            again = await anext(views)

    assert again.state == TrialState.PENDING


@within_time
async def test_the_description_lists_the_live_hosted_trials():
    async with Played(CountingHosting(Pacing(rate=5), **STEPPED)) as played:
        await played.start()
        await played.start(trial_params([actor("a0")]), "plain")
        description = await played.server.players.describe()

    assert (description.guest, description.tick_rate) == ("counting", 5)
    assert [(one.trial_id, one.state) for one in description.trials] == [("t", TrialState.PENDING)]
    assert [one.name for one in description.trials[0].actors] == ["a0", "a1"]
