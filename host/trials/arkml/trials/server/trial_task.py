"""One trial of a server: its state machine, between the streams of environment and actors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from arkml.trials.core.endpoints import TrialEndpoint
from arkml.trials.core.error import TrialError
from arkml.trials.core.hosted_side import HostedSide
from arkml.trials.core.hosting import (
    HostedEnvironment,
    HostedRewards,
    Hosting,
    Pacing,
    PlayedTick,
    StandIn,
)
from arkml.trials.core.outputs import (
    CallActor,
    CallEnvironment,
    Changed,
    EndActor,
    EndEnvironment,
    Entries,
    Entry,
    GiveActions,
    Logged,
    Notice,
    Output,
    Show,
    ToActor,
    ToEnvironment,
)
from arkml.trials.core.states import ENDED
from arkml.trials.core.trial import Trial
from arkml.trials.server.datalog_stream import DatalogStream, HeldBack
from arkml.trials.server.local_callers import refused
from arkml.trials.server.views import Lookers
from arkml.trials.service import Callers
from arkml.trials.streams import Passing, Sender
from arkml.trials.wire.actor_pb2 import (
    ActorInitialOutput,
    ActorRunTrialInput,
    ActorRunTrialOutput,
)
from arkml.trials.wire.common_pb2 import TrialParams, TrialState
from arkml.trials.wire.environment_pb2 import EnvRunTrialInput, EnvRunTrialOutput

_ToEnvironment: TypeAlias = ToEnvironment | GiveActions | EndEnvironment


class TrialEvents(Protocol):
    """Receives the events of trials."""

    def changed(self, trial: Trial, state: TrialState) -> None:
        """Handle a new state."""

    def entries(self, trial: Trial, entries: Sequence[Logged]) -> None:
        """Handle log entries, in order."""

    def notice(self, trial: Trial, text: str, *, is_warning: bool) -> None:
        """Handle a sentence for the operator."""


class TrialTask:
    """
    Drives one trial: passes messages to its machine, and applies the machine's outputs.

    Belongs to one event loop. Nothing here waits, so a slow actor delays its own trial only
    (decision 18).
    """

    def __init__(
        self, trial: Trial, callers: Callers, events: TrialEvents, hosting: Hosting | None = None
    ) -> None:
        self.trial = trial
        self.lookers = Lookers(trial)
        self._callers = callers
        self._events = events
        self._hosting = hosting
        self._loop = asyncio.get_running_loop()
        self._actors: dict[int, tuple[Sender[ActorRunTrialInput], ActorReceiver]] = {}
        self._environment: Sender[EnvRunTrialInput] | None = None
        self._hosted: HostedEnvironment | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_sending = False
        self._begun = asyncio.Event()
        self._datalog: DatalogStream | None = None
        self._held: HeldBack[_ToEnvironment] = HeldBack(self._give)

    def begin(self, params: TrialParams, pacing: Pacing | None = None) -> None:
        """Start the trial with its parameters, and a hosted trial with its tick timing."""
        self.trial.begin(params, self._loop.time(), pacing)
        self._begun.set()
        self._apply()

    async def until_begun(self) -> None:
        """Wait until the trial has parameters, or has ended."""
        if not self.trial.is_over:
            await self._begun.wait()

    async def join(
        self, slot: ActorInitialOutput, sender: Sender[ActorRunTrialInput]
    ) -> ActorReceiver:
        """Admit an actor once the trial has parameters. Raises TrialError if it cannot join."""
        await self.until_begun()
        index = self.trial.slot(slot)
        receiver = self._admit(index, sender)
        self._do(lambda now: self.trial.join(index, now))
        return receiver

    async def take_over(
        self,
        slot: ActorInitialOutput,
        user_id: str,
        sender: Sender[ActorRunTrialInput],
        most_people: int,
    ) -> ActorReceiver:
        """
        Admit a person as the player of an actor. Raises TrialError if it cannot be taken over.

        Args:
            slot: Name or class of the actor.
            user_id: Name of the person.
            sender: Stream to the person.
            most_people: Maximum number of people in the trial.

        """
        await self.until_begun()
        index = self.trial.slot_to_take_over(slot)
        assert self.trial.hosted is not None
        if self.trial.hosted.people >= most_people:
            raise TrialError(
                f"{most_people} people play in trial {self.trial.id}, the most of one trial"
            )
        if index in self._actors:  # the actor has a player that is away: end its stream
            reason = f"{user_id!r} took it over"
            self._do(lambda now: self.trial.lose_actor(index, reason, now))
        receiver = self._admit(index, sender)
        actor, hosted = self.trial.actors[index], self.trial.hosted
        self._do(lambda now: hosted.take_over(actor, user_id, now))
        return receiver

    async def open_datalog(self, params: TrialParams, most_bytes: int) -> None:
        """Open the stream to the datalog of `params`, and wait until it is connected or lost."""

        def warn(text: str) -> None:
            self._events.notice(self.trial, text, is_warning=True)

        self._datalog = DatalogStream(self.trial, params, self._callers, most_bytes, warn)
        self._held.datalog = self._datalog
        await self._datalog.written()

    def terminate(self, *, is_hard: bool, reason: str = "") -> None:
        """Request the end of the trial; with `is_hard` end it at once."""
        if is_hard:
            self._do(lambda _: self.trial.cut(reason or "the trial was terminated"))
        else:
            self._do(lambda now: self.trial.terminate(now, reason))

    def from_actor(self, index: int, message: ActorRunTrialOutput) -> None:
        """Pass a message of an actor to the trial."""
        self.trial.from_actor(index, message, self._loop.time())
        self._apply()

    def from_environment(self, *messages: EnvRunTrialOutput) -> None:
        """Pass messages of the environment to the trial."""
        now = self._loop.time()
        for message in messages:
            self.trial.from_environment(message, now)
        self._apply()

    def take_played(self, hosted: HostedSide, played: PlayedTick) -> None:
        """Pass a tick that was played ahead to the trial; its messages follow."""
        if not self.trial.is_over:
            hosted.take_played(played, self._loop.time())

    def lose_actor(self, index: int, reason: str) -> None:
        """Report the end of an actor's stream to the trial."""
        self._do(lambda now: self.trial.lose_actor(index, reason, now))

    def lose_environment(self, reason: str) -> None:
        """Report the end of the environment's stream to the trial."""
        self._do(lambda _: self.trial.lose_environment(reason))

    def _admit(self, index: int, sender: Sender[ActorRunTrialInput]) -> ActorReceiver:
        receiver = ActorReceiver(self, index)
        self._actors[index] = sender, receiver
        return receiver

    def _do(self, change: Callable[[float], object]) -> None:
        change(self._loop.time())
        self._apply()

    def _apply(self) -> None:
        """Apply the trial's outputs until there are none left, and set a timer for its deadline."""
        if self._is_sending:
            return  # a sender called back: the outer call's loop applies the new outputs
        self._is_sending = True
        is_changed = False
        try:
            while outputs := self.trial.take():
                is_changed = True
                self._apply_all(outputs)
        finally:
            self._is_sending = False
        if is_changed or self.trial.is_hosted:  # a hosted tick may begin without any output
            self._set_timer()

    def _apply_all(self, outputs: Sequence[Output]) -> None:
        """Apply outputs in order. Log entries are collected until the next change of state."""
        entries: list[Logged] = []
        for output in outputs:
            if isinstance(output, Entry | Entries):
                entries.append(output)
                continue
            if entries and isinstance(output, Changed):
                self._log(entries)
                entries = []
            self._apply_one(output)
        if entries:
            self._log(entries)

    def _apply_one(self, output: Output) -> None:
        match output:
            case ToActor(index, message):
                self._actors[index][0].send(message)
            case ToEnvironment() | GiveActions() | EndEnvironment():
                self._held.give(output, is_last=isinstance(output, EndEnvironment))
            case Entry() | Entries():
                self._log([output])
            case Show(view):
                self.lookers.show(view)
            case EndActor(index):
                sender, receiver = self._actors.pop(index)
                receiver.end()
                sender.close()
            case CallActor(index):
                self._call_actor(index)
            case CallEnvironment():
                self._environment = self._called_environment()
            case Changed(state):
                if state == ENDED:
                    self._begun.set()  # wake actors that wait to join: they are refused
                    self.lookers.close()
                if self._datalog is not None:
                    self._datalog.change(state)
                self._events.changed(self.trial, state)
            case Notice(text, is_warning):
                self._events.notice(self.trial, text, is_warning=is_warning)

    def _log(self, entries: Sequence[Logged]) -> None:
        if self._datalog is not None:
            self._datalog.take(entries)
        self._events.entries(self.trial, entries)

    def _give(self, output: _ToEnvironment) -> None:
        match output:
            case ToEnvironment(message):
                assert self._environment is not None
                self._environment.send(message)
            case GiveActions(tick, acted, most_ahead):
                if self._hosted is not None:
                    self._hosted.act(tick, acted, most_ahead)
            case EndEnvironment():
                assert self._environment is not None
                self._environment.close()

    def _call_actor(self, index: int) -> None:
        params, receiver = self.trial.params.actors[index], ActorReceiver(self, index)
        endpoint = TrialEndpoint.parse(params.endpoint)
        sender = self._callers.actor(endpoint, params.implementation, self.trial.id, receiver)
        self._actors[index] = sender, receiver

    def _called_environment(self) -> Sender[EnvRunTrialInput]:
        params, receiver = self.trial.params.environment, EnvironmentReceiver(self)
        hosted = self.trial.hosted
        if hosted is None:
            endpoint = TrialEndpoint.parse(params.endpoint)
            return self._callers.environment(
                endpoint, params.implementation, self.trial.id, receiver
            )
        assert self._hosting is not None
        try:
            self._hosted = self._hosting.open(HostedEnd(self, hosted))
        except TrialError as error:
            return refused(receiver, error)
        return Passing(self._hosted, "the trial ended the stream")

    def _set_timer(self) -> None:
        """Schedule the trial's next deadline. A timer that fires early sets another one."""
        deadline = self.trial.deadline()
        timer = self._timer
        if deadline is None:
            if timer is not None and self.trial.is_over:
                timer.cancel()
                self._timer = None
        elif timer is None or deadline < timer.when():
            if timer is not None:
                timer.cancel()
            self._timer = self._loop.call_at(deadline, self._elapse)

    def _elapse(self) -> None:
        self._timer = None
        self._do(self.trial.elapse)
        self._set_timer()


class ActorReceiver:
    """
    The Receiver of an actor's messages, until the trial ends the stream.

    The actor may get another stream after that.
    """

    def __init__(self, task: TrialTask, index: int) -> None:
        self._task: TrialTask | None = task
        self._index = index

    def receive(self, message: ActorRunTrialOutput) -> None:
        """Pass a message to the trial."""
        if self._task is not None:
            self._task.from_actor(self._index, message)

    def lose(self, reason: str) -> None:
        """Report the end of the stream to the trial."""
        if self._task is not None:
            self._task.lose_actor(self._index, reason)

    def end(self) -> None:
        """Note that the trial has ended the stream."""
        self._task = None


class EnvironmentReceiver:
    """The Receiver of an environment's messages."""

    def __init__(self, task: TrialTask) -> None:
        self._task = task

    def receive(self, message: EnvRunTrialOutput) -> None:
        """Pass a message to the trial."""
        self._task.from_environment(message)

    def lose(self, reason: str) -> None:
        """Report the end of the stream to the trial."""
        self._task.lose_environment(reason)


class HostedEnd:
    """A hosted trial as its environment uses it; see HostedTrial."""

    def __init__(self, task: TrialTask, hosted: HostedSide) -> None:
        self._task = task
        self._hosted = hosted

    @property
    def trial_id(self) -> str:
        """Id of the trial."""
        return self._task.trial.id

    def stand_in(self, stand_ins: Sequence[StandIn]) -> None:
        """Offer one action for each actor, for the tick of the next observations."""
        self._hosted.stand_in(stand_ins)

    def reward(self, rewards: HostedRewards) -> None:
        """Give rewards for the present tick, before the next message is sent."""
        self._hosted.reward(rewards)

    def take_played(self, played: PlayedTick) -> None:
        """Report a tick that was played ahead, before the next message is sent."""
        self._task.take_played(self._hosted, played)

    def send(self, message: EnvRunTrialOutput) -> None:
        """Send a message of the environment."""
        self._task.from_environment(message)

    def send_all(self, messages: Sequence[EnvRunTrialOutput]) -> None:
        """Send several messages at once, which is faster than one by one."""
        self._task.from_environment(*messages)

    def close(self) -> None:
        """End the stream after the messages that were sent."""
        self._task.lose_environment("the environment ended its stream")
