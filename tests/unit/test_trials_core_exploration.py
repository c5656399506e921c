"""Sequences of inputs that a trial may get, in any order, and what holds after each of them."""

import random
from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from tests.driven_trial import (
    DrivenTrial,
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

from arkml.trials.core.actors import ActorPlace, Breach, TrialPlace
from arkml.trials.core.error import TrialError
from arkml.trials.core.outputs import (
    CallActor,
    CallEnvironment,
    Changed,
    EndActor,
    EndEnvironment,
    ToActor,
    ToEnvironment,
)
from arkml.trials.core.states import ACTOR, ENVIRONMENT, HOSTED_ACTOR, TRIAL, Move, Phase
from arkml.trials.wire.actor_pb2 import ActorRunTrialOutput
from arkml.trials.wire.common_pb2 import CommunicationState, TrialState
from arkml.trials.wire.environment_pb2 import EnvRunTrialOutput

STATES = [*CommunicationState.values(), 77]
RECEIVERS = ["*", "*.*", "player.*", "player.a0", "a0", "env", "nothing", ""]


@pytest.mark.parametrize(
    "table", [ACTOR, HOSTED_ACTOR, ENVIRONMENT], ids=["actor", "hosted actor", "environment"]
)
@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("step", Move)
def test_each_step_of_each_phase_moves_or_is_a_breach(table, phase, step):
    place = TrialPlace("one", table)
    place.phase = phase

    if step in table[phase]:
        place.take(step)
        assert place.phase is table[phase][step]
    else:
        with pytest.raises(Breach, match=phase.value):
            place.take(step)
        assert place.phase is phase


def test_states_of_trials_only_move_forward_and_each_can_be_left():
    order = [state for state in TrialState.values() if state != TrialState.UNKNOWN]

    assert list(TRIAL) == order
    for state, moves in TRIAL.items():
        assert all(following > state for following in moves.values())
        assert moves or state == TrialState.ENDED


class Checks:
    """What holds for all outputs of a trial, one after the other."""

    def __init__(self):
        self.states = [TrialState.INITIALIZING]
        self.opened, self.ended, self.ends = Counter(), set(), Counter()
        self.tick = {}  # the last observation of each actor
        self.action_tick = -1
        self.present_at_tick = {}

    def take(self, outputs, trial):
        for output in outputs:
            match output:
                case Changed(state):
                    assert state in TRIAL[self.states[-1]].values()
                    self.states.append(state)
                case CallEnvironment():
                    self.open("environment")
                case CallActor(index):
                    self.open(index)
                case ToActor(index, message):
                    self.send(index, message)
                    if message.WhichOneof("data") == "observation":
                        self.observe(index, message.observation.tick_id)
                    if message.WhichOneof("data") == "init_input" and trial.actors[index].joins:
                        self.opened[index] += 1
                case ToEnvironment(message):
                    self.send("environment", message)
                    if message.WhichOneof("data") == "action_set":
                        self.give(message.action_set, trial)
                case EndActor(index):
                    self.end(index)
                case EndEnvironment():
                    self.end("environment")
        if trial.is_over:
            assert self.ended == set(self.opened)
            assert self.states[-1] == TrialState.ENDED

    def open(self, stream):
        self.opened[stream] += 1
        assert self.opened[stream] == 1

    def send(self, stream, message):
        assert stream not in self.ended
        assert not self.ends[stream], "something was sent after END"
        self.ends[stream] += message.state == CommunicationState.END

    def end(self, stream):
        assert self.ends[stream] == 1, "a stream ended without END"
        assert self.opened[stream] == 1
        self.ended.add(stream)

    def observe(self, index, tick):
        assert tick == self.tick.get(index, -1) + 1
        self.tick[index] = tick

    def give(self, actions, trial):
        assert actions.tick_id == self.action_tick + 1
        assert len(actions.actions) == len(trial.actors)
        assert all(not actions.actions[index] for index in actions.unavailable_actors)
        self.action_tick = actions.tick_id


def check_awaited(trial):
    """A trial that is not over waits for a time, or for one that is there to answer."""
    if trial.is_over or trial.deadline() is not None:
        return
    awaited = [one for one in trial.actors if one.is_awaited or one.is_missing]
    environment = trial.environment.phase
    is_environment_asked = environment is not Phase.ABSENT and not awaited
    assert trial.state == TrialState.INITIALIZING or awaited or is_environment_asked


class AnyTrial(RuleBasedStateMachine):
    """A trial of one to three actors of every kind."""

    @initialize(
        kinds=st.lists(
            st.fixed_dictionaries(
                {
                    "joins": st.booleans(),
                    "optional": st.booleans(),
                    "initial_connection_timeout": st.sampled_from([0, 2]),
                    "response_timeout": st.sampled_from([0, 3]),
                }
            ),
            min_size=1,
            max_size=3,
        ),
        max_steps=st.sampled_from([0, 0, 2]),
        max_inactivity=st.sampled_from([0, 100]),
    )
    def begin(self, kinds, max_steps, max_inactivity):
        actors = []
        for index, kind in enumerate(kinds):
            endpoint = "cogment://client" if kind.pop("joins") else "grpc://127.0.0.1:9"
            actors.append(actor(f"a{index}", endpoint=endpoint, **kind))
        self.driven = DrivenTrial(
            trial_params(actors, max_steps=max_steps, max_inactivity=max_inactivity)
        )
        self.trial, self.count = self.driven.trial, len(actors)
        self.checks = Checks()
        self.seen = 0

    @invariant()
    def all_holds(self):
        if not hasattr(self, "driven"):
            return
        outputs = self.driven.outputs
        self.checks.take(outputs[self.seen :], self.trial)
        self.seen = len(outputs)
        check_awaited(self.trial)

    # What a good peer does, so that trials get far

    @rule()
    def all_arrive(self):
        self.driven.all_arrive()

    @rule()
    def play(self):
        self.driven.observe()
        for one in self.trial.actors:
            if one.is_missing:
                self.driven.act(one.index)

    @rule()
    def leave(self):
        for one in self.trial.actors:
            if one.phase is Phase.LEAVING:
                self.driven.acknowledge(one.index)

    # What any peer may do

    @rule(data=st.data())
    def join(self, data):
        name = data.draw(st.sampled_from([f"a{index}" for index in range(4)]))
        try:
            index = self.trial.slot(slot(name))
        except TrialError:
            return
        self.trial.join(index, self.driven.now)
        self.driven.collect()

    @rule(number=st.integers(0, 2), tick=st.integers(-2, 3))
    def act(self, number, tick):
        self.driven.actor(number % self.count, action(tick=tick))

    @rule(number=st.integers(0, 2), state=st.sampled_from(STATES))
    def say(self, number, state):
        self.driven.actor(number % self.count, ActorRunTrialOutput(state=state))

    @rule(number=st.integers(-1, 2), receiver=st.sampled_from(RECEIVERS), tick=st.integers(-2, 3))
    def reward(self, number, receiver, tick):
        reward = reward_for(receiver, (1.0, 0.5), tick=tick)
        if number < 0:
            self.driven.environment(EnvRunTrialOutput(state=1, reward=reward))
        else:
            self.driven.actor(number % self.count, ActorRunTrialOutput(state=1, reward=reward))

    @rule(number=st.integers(-1, 2), receiver=st.sampled_from(RECEIVERS), tick=st.integers(-2, 3))
    def message(self, number, receiver, tick):
        message = message_for(receiver, tick)
        if number < 0:
            self.driven.environment(EnvRunTrialOutput(state=1, message=message))
        else:
            self.driven.actor(number % self.count, ActorRunTrialOutput(state=1, message=message))

    @rule(tick=st.integers(-2, 4), extra=st.sampled_from([0, 0, 0, 1, -1]))
    def observe(self, tick, extra):
        self.driven.environment(observations(self.count + extra, tick))

    @rule(state=st.sampled_from(STATES))
    def say_as_environment(self, state):
        self.driven.environment(EnvRunTrialOutput(state=state))

    @rule(number=st.integers(0, 2))
    def lose_actor(self, number):
        self.driven.lose_actor(number % self.count)

    @precondition(lambda self: len(self.checks.states) > 2)
    @rule()
    def lose_environment(self):
        self.driven.lose_environment()

    @rule()
    def terminate(self):
        self.driven.terminate()

    @precondition(lambda self: self.seen > 30)
    @rule()
    def cut(self):
        self.driven.cut()

    @rule(seconds=st.sampled_from([0.5, 2.5, 31.0, 61.0]))
    def wait(self, seconds):
        self.driven.wait(seconds)


AnyTrial.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestAnySequenceOfInputs = AnyTrial.TestCase


def walk(driven, chance):
    """Do one thing that a peer of a trial may do; most are what it should do."""
    trial, kind = driven.trial, chance.choice(STEPS)
    anyone = chance.randrange(len(trial.actors))
    match kind:
        case "arrive":
            for one in trial.actors:
                if one.joins and one.phase is Phase.ABSENT and not trial.is_over:
                    driven.join(one.name)
                elif one.phase is Phase.CALLED:
                    driven.actor(one.index, joining())
            if trial.environment.phase is Phase.CALLED and chance.random() < 0.9:
                driven.environment(ready())
        case "observe":
            driven.observe()
        case "act":
            for one in trial.actors:
                if one.phase in (Phase.READY, Phase.PLAYING, Phase.LEAVING):
                    driven.act(one.index)
        case "leave":
            for one in trial.actors:
                if one.phase is Phase.LEAVING and chance.random() < 0.6:
                    driven.acknowledge(one.index)
        case "say":
            state = chance.choice(STATES)
            if chance.random() < 0.5:
                driven.environment(EnvRunTrialOutput(state=state))
            else:
                driven.actor(anyone, ActorRunTrialOutput(state=state))
        case "talk":
            reward, message = reward_for("*", (1, 1)), message_for("*")
            driven.actor(anyone, ActorRunTrialOutput(state=1, reward=reward))
            driven.environment(EnvRunTrialOutput(state=1, message=message))
        case "end":
            driven.environment(EnvRunTrialOutput(state=CommunicationState.LAST))
        case "acknowledge":
            driven.environment(EnvRunTrialOutput(state=CommunicationState.LAST_ACK))
        case "terminate":
            driven.terminate()
        case "lose":
            driven.lose_actor(anyone)
        case "lose environment":
            driven.lose_environment()
        case "wait":
            driven.wait(chance.choice([1, 3, 31]))


STEPS = ["arrive", "observe", "act"] * 5 + ["leave", "acknowledge", "say", "talk"] * 2
STEPS += ["end", "terminate", "lose"] * 2 + ["lose environment", "wait"]


def test_every_row_of_the_tables_is_reached(monkeypatch):
    """A row that nothing reaches is a promise of the diagram that the code does not keep."""
    reached, changes, take = set(), set(), TrialPlace.take

    def spy(self, step):
        phase = self.phase
        take(self, step)
        reached.add((type(self), phase, step))

    monkeypatch.setattr(TrialPlace, "take", spy)
    chance = random.Random(14)
    for number in range(1_500):
        actors = [
            actor(f"a{index}", endpoint=endpoint, optional=chance.random() < 0.5)
            for index, endpoint in enumerate(["cogment://client", "grpc://127.0.0.1:9"])
        ]
        driven = DrivenTrial(trial_params(actors), is_begun=False)
        if number == 0:
            driven.cut()
        else:
            driven.begin(trial_params(actors))
        for _ in range(25):
            if not driven.is_over:
                walk(driven, chance)
        changes |= set(zip(driven.states, driven.states[1:], strict=False))
    rows = {
        (place, phase, step)
        for place, table in ((ActorPlace, ACTOR), (TrialPlace, ENVIRONMENT))
        for phase, moves in table.items()
        for step in moves
    }

    assert reached == rows
    assert changes == {(old, new) for old, moves in TRIAL.items() for new in moves.values()}
