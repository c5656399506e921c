"""A task that runs one trial of a server, between its environment's and its actors' streams."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from arkml.trials.core.error import TrialError
from arkml.trials.core.hosting import HostedEnvironment, HostedTick, Hosting, Pacing
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
    Show,
    ToActor,
    ToEnvironment,
)
from arkml.trials.core.parameters import TrialEndpoint
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
_Applied: TypeAlias = (
    _ToEnvironment | CallEnvironment | CallActor | Show | ToActor | EndActor | Changed | Notice
)


class TrialEvents(Protocol):
    """Receives the events of trials."""

    def changed(self, trial: Trial, state: TrialState) -> None:
        """Handle a new state of a trial."""

    def entries(self, trial: Trial, entries: Sequence[Logged]) -> None:
        """Handle entries for a trial's log, in order."""

    def notice(self, trial: Trial, text: str, *, is_warning: bool) -> None:
        """
        Handle a sentence about a trial for the operator of the server.

        Args:
            trial: The trial.
            text: The sentence.
            is_warning: Whether it is a warning.

        """


class TrialTask:
    """
    Runs one trial: passes messages to its state machine, and applies the machine's outputs.

    Belongs to one event loop. Nothing here waits, so a slow actor delays its own trial only
    (decision 18).

    Args:
        trial: The state machine of the trial.
        callers: Opens streams to the environment and to actors.
        events: Receives the states, log entries and notices of the trial.
        hosting: Environments that run in this process, None for none.

    """

    def __init__(
        self, trial: Trial, callers: Callers, events: TrialEvents, hosting: Hosting | None = None
    ) -> None:
        self.trial = trial
        self.lookers = Lookers(trial)
        self._callers = callers
        self._events = events
        self._hosting = hosting
        self.loop = asyncio.get_running_loop()
        self._actors: dict[int, tuple[Sender[ActorRunTrialInput], ActorReceiver]] = {}
        self._environment: Sender[EnvRunTrialInput] | None = None
        self._hosted: HostedEnvironment | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_sending = False
        self._begun = asyncio.Event()
        self._datalog: DatalogStream | None = None
        self._held: HeldBack[_ToEnvironment] | None = None  # with a datalog

    def begin(self, params: TrialParams, pacing: Pacing | None = None) -> None:
        """Start the trial with its parameters; a hosted trial also gets the timing of its ticks."""
        self.trial.begin(params, self.loop.time(), pacing)
        self._begun.set()
        self.apply()

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
        if self.trial.hosted.people() >= most_people:
            raise TrialError(
                f"{most_people} people play in trial {self.trial.id}, the most of one trial"
            )
        if index in self._actors:  # the actor has a player that is away: end its stream
            reason = f"{user_id!r} took it over"
            self._do(lambda now: self.trial.lose_actor(index, reason, now))
        receiver = self._admit(index, sender)
        self._do(lambda now: self.trial.take_over(index, user_id, now))
        return receiver

    async def open_datalog(self, params: TrialParams, most_bytes: int) -> None:
        """Open the stream to the datalog of `params`, and wait until it is connected or lost."""

        def warn(text: str) -> None:
            self._events.notice(self.trial, text, is_warning=True)

        self._datalog = DatalogStream(self.trial, params, self._callers, most_bytes, warn)
        self._held = HeldBack(self._datalog, self._give)
        await self._datalog.written()

    def terminate(self, *, is_hard: bool, reason: str = "") -> None:
        """Request the end of the trial; with `is_hard` end it at once."""
        if is_hard:
            self._do(lambda _: self.trial.cut(reason or "the trial was terminated"))
        else:
            self._do(lambda now: self.trial.terminate(now, reason))

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
        change(self.loop.time())
        self.apply()

    def apply(self) -> None:
        """
        Apply the trial's outputs until there are none left, and set a timer for its deadline.

        Log entries are passed on together, at the end or before a new state of the trial.
        """
        if self._is_sending:
            return  # a sender called back: the outer call's loop applies the new outputs
        self._is_sending = True
        is_changed = False
        try:
            while outputs := self.trial.take():
                is_changed = True
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
        finally:
            self._is_sending = False
        if is_changed or self.trial.hosted is not None:
            self._set_timer()  # a hosted tick may begin without any output

    def _apply_one(self, output: _Applied) -> None:
        match output:
            case ToActor(index, message):
                self._actors[index][0].send(message)
            case ToEnvironment() | GiveActions() | EndEnvironment():
                if self._held is None:
                    self._give(output)
                else:
                    self._held.give(output, is_last=isinstance(output, EndEnvironment))
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
        params, end = self.trial.params.environment, EnvironmentEnd(self)
        if self.trial.hosted is None:
            endpoint = TrialEndpoint.parse(params.endpoint)
            return self._callers.environment(endpoint, params.implementation, self.trial.id, end)
        assert self._hosting is not None
        try:
            self._hosted = self._hosting.open(end)
        except TrialError as error:
            return refused(end, error)
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
            self._timer = self.loop.call_at(deadline, self._elapse)

    def _elapse(self) -> None:
        self._timer = None
        self._do(self.trial.elapse)
        self._set_timer()


class ActorReceiver:
    """
    The receiving end of an actor's stream to a trial, until the trial ends the stream.

    The actor may get another stream after that.
    """

    def __init__(self, task: TrialTask, index: int) -> None:
        self._task: TrialTask | None = task
        self._index = index

    def receive(self, message: ActorRunTrialOutput) -> None:
        """Pass a message of the actor to the trial."""
        task = self._task
        if task is not None:
            task.trial.from_actor(self._index, message, task.loop.time())
            task.apply()

    def lose(self, reason: str) -> None:
        """Tell the trial that the actor's stream has ended."""
        if self._task is not None:
            self._task.lose_actor(self._index, reason)

    def end(self) -> None:
        """Note that the trial has ended the stream: later messages are ignored."""
        self._task = None


class EnvironmentEnd:
    """
    The receiving end of the environment's stream to a trial.

    To a hosted environment, this object is its trial, as HostedTrial describes it.
    """

    def __init__(self, task: TrialTask) -> None:
        self._task = task

    @property
    def trial_id(self) -> str:
        """Id of the trial."""
        return self._task.trial.id

    def receive(self, message: EnvRunTrialOutput) -> None:
        """Pass a message of the environment to the trial."""
        task = self._task
        task.trial.from_environment(message, task.loop.time())
        task.apply()

    def observe(self, tick: HostedTick) -> None:
        """Pass the next tick of a hosted environment to the trial."""
        task = self._task
        task.trial.take_tick(tick, task.loop.time())
        task.apply()

    def pass_over(self, tick: HostedTick) -> None:
        """Pass a tick that was played ahead to the trial; the next tick or message follows it."""
        task = self._task
        task.trial.take_tick(tick, task.loop.time(), is_ahead=True)

    def lose(self, reason: str) -> None:
        """Tell the trial that the environment's stream has ended."""
        self._task.lose_environment(reason)
