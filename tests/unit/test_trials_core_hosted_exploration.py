"""Sequences of inputs that a hosted trial may get, in any order, and what holds after each."""

import math

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.driven_trial import (
    DrivenTrial,
    action,
    actor,
    hosted_params,
    message_for,
    observations,
    reward_for,
    slot,
    standing_by,
)

from arkml.trials.core.error import TrialError
from arkml.trials.core.hosting import ActionNote, HostedRewards, HostedTick, Pacing, StandIn
from arkml.trials.core.outputs import Changed, EndActor, GiveActions, Show, ToActor, ToEnvironment
from arkml.trials.core.states import TRIAL, Phase
from arkml.trials.wire.actor_pb2 import ActorRunTrialOutput
from arkml.trials.wire.common_pb2 import CommunicationState, RewardSource, TrialState
from arkml.trials.wire.environment_pb2 import EnvRunTrialOutput

STATES = [*CommunicationState.values(), 77]
KINDS = {
    "stand-in": lambda name, **times: standing_by(name, **times),
    "client": lambda name, **times: actor(name, **times),
    "called": lambda name, **times: actor(name, endpoint="grpc://127.0.0.1:9", **times),
}
USERS = ["ann", "ben"]


class HostedChecks:
    """What holds for all outputs of a hosted trial, one after the other."""

    def __init__(self, rate):
        self.rate = rate
        self.state = TrialState.INITIALIZING
        self.streams = {}  # the last tick that each open stream has seen
        self.observed = self.acted = -1
        self.most_ahead = 0
        self.shown = -1
        self.due = -math.inf

    def observe(self, tick, now):
        """Take in observations that the trial has accepted."""
        assert tick == self.observed + 1
        self.observed = tick
        before = now if not tick else self.due
        self.due = max(before + 1 / self.rate, now) if self.rate else now

    def pass_over(self, tick):
        """Take in a tick that the environment has played, and that the trial has accepted."""
        assert tick == self.observed + 1 == self.acted + 1
        self.observed = self.acted = tick
        self.most_ahead -= 1

    def take(self, outputs, trial, now):
        for output in outputs:
            match output:
                case Changed(state):
                    assert state in TRIAL[self.state].values()
                    self.state = state
                case GiveActions(tick, acted, most_ahead):
                    self.act(tick, acted, trial, now)
                    assert not (most_ahead and (self.streams or self.rate or trial.hosted.is_shown))
                    self.most_ahead = most_ahead
                case ToEnvironment(message):
                    assert message.WhichOneof("data") != "action_set"
                case Show(view):
                    assert view.tick_id > self.shown
                    assert len(view.players) == len(view.rewards) == len(trial.actors)
                    self.shown = view.tick_id
                case ToActor(index, message):
                    self.send(index, message)
                case EndActor(index):
                    del self.streams[index]
        if trial.is_over:
            assert not self.streams

    def act(self, tick, acted, trial, now):
        assert tick == self.acted + 1 == self.observed, "one set of actions a tick"
        assert len(acted) == len(trial.actors)
        assert now >= self.due - 1e-5, "a tick left before its time"
        for index, one in enumerate(acted):
            if one.note in (ActionNote.GIVEN, ActionNote.HELD):
                assert index in self.streams, "no one plays for this actor"
            else:
                assert (one.note, one.content, one.origin) == (ActionNote.STAND_IN, b"s", "v")
            assert (one.note is ActionNote.HELD) == (one.idle > 0)
        self.acted = tick

    def send(self, index, message):
        kind = message.WhichOneof("data")
        if kind == "init_input":
            assert index not in self.streams, "two players of one actor"
            self.streams[index] = -1
        assert index in self.streams
        if kind == "observation":
            assert message.observation.tick_id > self.streams[index]
            self.streams[index] = message.observation.tick_id


class AnyHostedTrial(RuleBasedStateMachine):
    """A hosted trial of one to four actors of every kind, which people take over and leave."""

    @initialize(
        kinds=st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4),
        rate=st.sampled_from([0, 0, 10]),
        away=st.sampled_from([0.05, 2.0, 10.0]),
        response_timeout=st.sampled_from([0, 3]),
        max_steps=st.sampled_from([0, 0, 6]),
        max_inactivity=st.sampled_from([0, 100]),
        is_shown=st.booleans(),
    )
    def begin(self, kinds, rate, away, response_timeout, max_steps, max_inactivity, is_shown):
        times = {"response_timeout": response_timeout, "initial_connection_timeout": 5}
        actors = [KINDS[kind](f"a{index}", **times) for index, kind in enumerate(kinds)]
        params = hosted_params(actors, max_steps=max_steps, max_inactivity=max_inactivity)
        self.driven = DrivenTrial(params, pacing=Pacing(rate, away))
        self.driven.trial.hosted.is_shown = is_shown
        self.trial, self.count = self.driven.trial, len(actors)
        self.checks = HostedChecks(rate)
        self.rewards = []  # for the next tick of the environment
        self.seen = 0
        self.check()

    def check(self):
        outputs = self.driven.outputs
        self.checks.take(outputs[self.seen :], self.trial, self.driven.now)
        self.seen = len(outputs)

    @invariant()
    def something_is_awaited(self):
        if not hasattr(self, "driven"):
            return
        self.check()
        if not self.trial.is_over and self.trial.deadline() is None:
            awaits_actor = any(one.is_awaited for one in self.trial.actors)
            is_environment_asked = self.checks.acted == self.checks.observed
            is_ending = self.trial.state == TrialState.TERMINATING
            assert awaits_actor or is_environment_asked or is_ending

    def observed(self, message):
        """Send observations, and note them if they were taken in."""
        before = self.checks.observed
        self.check()
        latest = self.trial.latest
        stand_ins = [StandIn(b"s", "v")] * self.count
        tick = HostedTick(self.rewards, message.observation_set, stand_ins)
        self.rewards = []
        self.trial.take_tick(tick, self.driven.now)
        after = self.trial.latest
        if after is not None and (latest is None or after.tick_id > latest.tick_id):
            self.checks.observe(before + 1, self.driven.now)
        self.driven.collect()
        self.check()

    # What a good peer does, so that trials get far

    @rule()
    def all_arrive(self):
        self.driven.all_arrive()

    @rule(tick=st.sampled_from([-1, -1, -1, 0, 7]), late=st.sampled_from([0, 0, 0.04, 0.3]))
    def observe(self, tick, late):
        is_due = self.checks.acted == self.checks.observed
        self.wait(late)
        if is_due or tick == 7:
            self.observed(observations(self.count, -1 if is_due else tick))

    @precondition(lambda self: self.checks.most_ahead and not self.trial.is_over)
    @rule(ticks=st.integers(1, 7))
    def play_ahead(self, ticks):
        self.check()
        if self.checks.acted == self.checks.observed:
            for _ in range(min(ticks, self.checks.most_ahead)):
                observed = observations(self.count).observation_set
                stand_ins = [StandIn(b"s", "v")] * self.count
                tick = HostedTick([], observed, stand_ins)
                self.trial.take_tick(tick, self.driven.now, is_ahead=True)
                assert not self.trial.is_over
                self.checks.pass_over(self.trial.tick)
        self.observe(-1, 0)

    @rule(data=st.data(), ticks=st.integers(1, 4))
    def play(self, data, ticks):
        for _ in range(ticks):
            for index in sorted(self.checks.streams):
                if data.draw(st.integers(0, 3)):
                    self.driven.act(index)
            self.wait(0.1)
            self.observe(-1, 0)

    @rule()
    def leave(self):
        for one in self.trial.actors:
            if one.phase is Phase.LEAVING:
                self.driven.acknowledge(one.index)
        if self.trial.environment.phase is Phase.LEAVING:
            self.driven.environment(EnvRunTrialOutput(state=CommunicationState.LAST_ACK))

    # What any peer may do

    @rule(number=st.integers(0, 3), user=st.sampled_from(USERS))
    def take_over(self, number, user):
        index = number % self.count
        had_player = index in self.checks.streams
        try:
            self.driven.take_over(f"a{index}", user)
        except TrialError:
            return
        self.check()
        assert index in self.checks.streams
        assert not had_player or f"{user!r} took it over" in "".join(self.driven.to_actors[index])
        if self.checks.observed >= 0:
            assert self.checks.streams[index] == self.checks.observed

    @rule(number=st.integers(0, 3), tick=st.integers(-2, 9))
    def act(self, number, tick):
        self.driven.actor(number % self.count, action(tick=tick))

    @rule(number=st.integers(0, 3), state=st.sampled_from(STATES))
    def say(self, number, state):
        self.driven.actor(number % self.count, ActorRunTrialOutput(state=state))

    @rule(number=st.integers(-1, 3), receiver=st.sampled_from(["*", "a0", "env", "nothing"]))
    def talk(self, number, receiver):
        reward, message = reward_for(receiver, (1.0, 0.5)), message_for(receiver)
        if number < 0:
            self.driven.environment(EnvRunTrialOutput(state=1, reward=reward))
            source = RewardSource(value=1.0, confidence=1.0).SerializeToString()
            self.rewards.append(HostedRewards([0], [1.0], [source]))
            self.driven.environment(EnvRunTrialOutput(state=1, message=message))
        else:
            index = number % self.count
            self.driven.actor(index, ActorRunTrialOutput(state=1, reward=reward))
            self.driven.actor(index, ActorRunTrialOutput(state=1, message=message))

    @rule(number=st.integers(0, 3))
    def lose_actor(self, number):
        was_over, was_leaving = self.trial.is_over, self.trial.state == TrialState.TERMINATING
        self.driven.lose_actor(number % self.count)
        assert self.trial.is_over == was_over or was_leaving, "a lost actor ended a hosted trial"

    @rule(name=st.sampled_from([f"a{index}" for index in range(5)]))
    def join(self, name):
        try:
            index = self.trial.slot(slot(name))
        except TrialError:
            return
        self.trial.join(index, self.driven.now)
        self.driven.collect()

    @precondition(lambda self: self.checks.observed > 3)
    @rule(state=st.sampled_from(STATES))
    def say_as_environment(self, state):
        self.driven.environment(EnvRunTrialOutput(state=state))

    @precondition(lambda self: self.checks.observed > 2)
    @rule()
    def terminate(self):
        self.driven.terminate()

    @precondition(lambda self: self.seen > 60)
    @rule()
    def cut(self):
        self.driven.cut()

    @rule(seconds=st.sampled_from([0.03, 0.1, 2.5]))
    def wait(self, seconds):
        """Let time pass; each deadline is checked at its own time."""
        self.check()
        until = self.driven.now + seconds
        while (deadline := self.trial.deadline()) is not None and deadline <= until:
            self.driven.now = max(self.driven.now, deadline)
            self.trial.elapse(self.driven.now)
            self.driven.collect()
            self.check()
        self.driven.now = until


AnyHostedTrial.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestAnySequenceOfInputs = AnyHostedTrial.TestCase
