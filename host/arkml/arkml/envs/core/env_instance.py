"""One instance of a guest in an environment, stepped from submit to submit."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from arkml.base.closing import Closing
from arkml.batches import Batch, Floats
from arkml.envs.core.agent_tracker import AgentNumbers, AgentTracker
from arkml.envs.core.decisions import Behavior, Decision, InPlace, Replaced, Step
from arkml.envs.core.declared_specs import Declarations
from arkml.envs.core.episode_limit import EpisodeLimit
from arkml.envs.core.experiments import Experiments
from arkml.envs.core.guest_messages import Messages
from arkml.envs.core.history import FrameState, History
from arkml.envs.core.transitions import LISTING
from arkml.envs.core.world import Calls, SeededWorld, frames_between
from arkml.errors import AbiError, ArkmlError, GuestError, GuestStalled, StateRefused
from arkml.guests.call_loop import CallLoop, GaveWay
from arkml.guests.guest import Guest, load_state, startup_of
from arkml.policies.external import ExternalPolicy
from arkml.runtime.account import WorkKind
from arkml.runtime.compiled_module import CompiledModule
from arkml.runtime.exported_function import ExportedFunction
from arkml.runtime.interrupts import GUARD
from arkml.sessions.session import InferenceSession, Session, TrainingSession

_AHEAD = 16  # frames: many guests submit in each second or fourth one alone

_ALL = slice(None)
_clock = time.perf_counter


def frames_ahead(idle: int, seconds: float | None) -> int:
    """Return how many frames a guest may run after the present one before the host checks on it."""
    return min(_AHEAD, idle) if seconds is None else 1


@dataclass(slots=True)
class Pending:
    """
    The submit that a guest is suspended in.

    `rows` is a decision, or says it with less work.
    """

    batch: Batch
    tracker: AgentTracker
    rows: Decision | InPlace | Replaced
    _decision: Decision | None = field(default=None, init=False)

    @property
    def decision(self) -> Decision:
        """The decision of the submit; access it for the first time before the guest is resumed."""
        if self._decision is None:
            rows = self.rows
            self._decision = rows if isinstance(rows, Decision) else rows.decision()
        return self._decision


class EnvInstance(Closing):
    """
    One instance of a guest in an environment, stepped from one submit to the next.

    A guest has stalled if it makes `idle` calls in one step, or as many submits without a decision,
    or takes `seconds`. With `gives_way` the methods that run the guest raise GaveWay when it has
    used its turn, or waits; `run_on` then continues it.

    Args:
        calls: The loop that serves the guest's calls.
        script: The calls of the guest, from its initializers to its frames.
        messages: Messages for the guest; frames run ahead while none waits.
        experiments: The experiments that the guest has started.
        world: The clock and random numbers.
        declarations: The declarations of the guest's behaviors.
        agents: The source of agents' numbers.
        frame: The function that is called repeatedly, None if a single call runs everything.
        inference: True if sessions of inference are stepped, None if only without an experiment.
        idle: Calls without a submit that a step may take.
        seconds: Seconds that a step may take, None for no limit.
        most_steps: The limit of an episode, None for no limit.
        history: A record of the guest's inputs, from which a copy can be made, or None.

    """

    def __init__(
        self,
        calls: CallLoop,
        script: Calls,
        messages: Messages,
        experiments: Experiments,
        world: SeededWorld,
        declarations: Declarations,
        agents: AgentNumbers,
        *,
        frame: str | None,
        inference: bool | None,
        idle: int,
        seconds: float | None,
        most_steps: int | None = None,
        history: History | None = None,
    ) -> None:
        self.calls = calls
        self.guest = Guest(calls)
        self.experiments = experiments
        self.pending: Pending | None = None
        self.world = world
        self.history: History | None = history
        """What entered it, if it may be copied."""
        self.handed_over: bytes | None = None
        """The state with which it has ended, for an instance of another module; None to play on."""
        self.is_one_call: bool = frame is None
        self._frame = frame
        self.gives_way: bool = False
        self._declarations = declarations
        self._agents = agents
        self._inference = inference
        self._trackers: dict[int, AgentTracker] = {}
        self._limit = None if most_steps is None else EpisodeLimit(most_steps)
        world.follow(calls.instance.words, calls.frames)
        self._words, self._frames = calls.instance.words, calls.frames
        self._script = world.framed(script)
        self._messages = messages
        self._ahead = frames_ahead(idle, seconds)
        self._idle = self._left = idle
        self._seconds = seconds
        self._until: float | None = None
        self._entry: ExportedFunction | None = None  # the call that the guest is in
        self._rebuilt: Callable[[], None] | None = None
        self._has_submitted = False  # in it: the next to end is the frame of the submit

    def answer(self, values: Floats) -> None:
        """Give actions to the agents that need one, float32, [m, num_actions]."""
        assert self.pending is not None
        self.answer_rows(values, self.pending.tracker.acting_rows)

    def answer_rows(self, values: Floats, rows: Any = _ALL) -> None:
        """
        Answer rows with actions, float32, [rows, num_actions]; rows of ended agents are ignored.

        The values of rows are left as zeros, as queues begin: once a policy has answered a submit
        of a session, no later submit of that session is a step.
        """
        pending = self.pending
        assert pending is not None
        batch = pending.batch
        batch.actions[rows] = values
        if pending.tracker.is_repeating:
            pending.tracker.keep_actions(batch.actions)
        if self.history is not None:
            self.history.answered(batch.actions.copy(), self.world.pace.nanoseconds)
        self._answered()

    def rebuild(self, module: CompiledModule, taken: Callable[[ArkmlError | None], None]) -> None:
        """
        Continue with a rebuilt module of the same layout from the next frame on, keeping the state.

        `taken` is then called, with the error if the module cannot be instantiated. Only for guests
        that are called once per frame.
        """

        def take() -> None:
            refused: ArkmlError | None = None
            instance = self.calls.instance
            with self.calls.fiber.call_guard.kept(self.guest.name):
                try:
                    instance.become(module)
                except ArkmlError as error:
                    refused = error
            taken(refused)

        self._rebuilt = take

    def hand_over(self, taken: Callable[[ArkmlError | None], None]) -> None:
        """
        End with the present frame, and then set `handed_over` to the result of `ark_state_persist`.

        If the guest returns no state, `taken` is called with its error, and it continues. Only for
        guests that are called once per frame and export that function.
        """

        def take() -> None:
            refused: ArkmlError | None = None
            try:
                self.handed_over = self.guest.persist()
            except ArkmlError as error:
                refused = error
            taken(refused)

        self._rebuilt = take

    def run(self) -> Step:
        """Run to the next submit with a decision; the previous submit must be answered."""
        return self._shown(self.run_to_pending())

    def run_to_pending(self, *, gave_way: bool = False) -> Step | None:
        """
        Run to the next submit with a decision, as `run` or, with `gave_way`, as `run_on`.

        Returns None if the guest is in a submit, which is then in `pending`.
        """
        is_new = not gave_way
        if is_new:
            self.pending = None
        while True:
            try:
                if not gave_way:
                    self._count(is_new=is_new)
                session = self._next_submit()
                self.world.settle()
                if session is not None and self.show(session):
                    return None
            except GuestError as error:
                return self.fail(error)
            except GaveWay:
                raise
            except BaseException:
                self._drop_all()
                raise
            if session is None:
                return self.finish()
            gave_way = is_new = False

    def run_on(self) -> Step:
        """Continue a guest that gave way in `run`."""
        return self._shown(self.run_to_pending(gave_way=True))

    def look(self) -> Step:
        """
        Return the step of a guest that was run elsewhere: its submit, or the next one, as by `run`.
        """
        self.pending = None
        return self._shown(None) if self.show(self.calls.submitted()) else self.run()

    def reach_submit(self, frames: int, *, has_ended: bool) -> bool:
        """
        Run a guest, which was run together with others, to its next submit that is a step.

        The guest is at the end of its call, or suspended in a request that is served first, and
        `frames` frames have ended since its last submit. Returns False if the guest has finished.
        Raises GuestError.
        """
        self._count(is_new=True)
        if has_ended:
            assert self._entry is not None
            self.calls.fiber.unpark()
            entry, self._entry = self._entry, None
            self.calls.end(entry)
            self._count_frames(frames)
            session = self._next_submit()
        else:
            session = self._next_submit(frames, is_suspended=True)
        self.world.settle()
        return session is not None

    def finish(self) -> Step:
        """Return the last step of a guest that came to its end; its agents are truncated."""
        return Step(self._drop_all(), has_finished=True)

    def show(self, session: Session) -> bool:
        """
        Store the guest's submit in `pending`; return False if it was answered at once.

        The guest is charged for the time. A submit with more agents than its limits allow is
        refused.
        """
        queue = self.calls.submitted_region()
        batch = queue.batch()
        if not len(batch.rows):
            self._answered()
            return False
        began = _clock()
        try:
            tracker = self._trackers.get(session.key)
            if tracker is None:
                tracker = self._tracked(session)
            said = queue.metadata()
            if len(said.rows):
                session.note(said)
            is_repeated = tracker.is_repeating and tracker.repeat_actions(batch)
            rows = None if is_repeated else tracker.observe(batch, said, queue.listed())
            queue.follow(tracker.highest, LISTING)
        except AbiError as error:
            self._refuse(session, error)
            return False
        finally:
            self.calls.account.charge(WorkKind.IMPORTS, _clock() - began)
        if rows is None:
            self._answered()
            return False
        self.pending = Pending(batch, tracker, rows)
        return True

    def fail(self, error: GuestError) -> Step:
        """Return the last step of a guest that failed; its agents are truncated."""
        return Step(self._drop_all(), error=error)

    def is_driven(self, session: Session) -> bool:
        """Return whether the submits of a session are steps of the environment."""
        if isinstance(session, TrainingSession):
            return isinstance(session.policy, ExternalPolicy) and session.policy.is_stepped
        if self._inference is not None:
            return self._inference
        return not self.experiments.started

    def pass_on(self, step: Step) -> Step:
        """
        Return a step, cut off if the episode of an agent has reached its limit.

        Raises InvalidSpec if the guest contradicts the declared specs.
        """
        if step.has_ended and self.experiments.refused is not None:
            raise self.experiments.refused
        return step if self._limit is None else self._limit.limited(step, self._drop_all)

    def obstacle(self) -> str:
        """Return the reason why the instance's state cannot be saved, as far as it is known."""
        if self.is_one_call:
            return "its guest runs in a single call"
        return self.guest.module.state.obstacle or "its guest holds what cannot be saved"

    def load(self, state: FrameState) -> None:
        """
        Load the state of another instance with the same origin, before the first call.

        `run_on` then continues. Raises StateRefused, AbiError and GuestError.
        """
        instance = self.calls.instance
        self.experiments.load(state.experiments)
        self._agents.begin(state.first_agent)
        for key, saved in state.trackers:
            tracker = self._agents.track(saved.behavior, self.calls.account.kept_rows)
            self._trackers[key] = tracker
            tracker.load(saved)
        with GUARD.held_back(), self.calls.fiber.call_guard.kept(self.guest.name):
            self.calls.services.rejoin(state.guest.services, self.experiments.rejoin)
            own = state.guest
            instance.require_loadable(len(own.wasm.memory), own.wasm.tables, own.services)
            load_state(self.guest, own)
        instance.counted_before = state.statistics
        self.world.load(state.world)
        if self._limit is not None:
            self._limit.load(state.episodes)
        self._left = state.calls_left

    def _save(self, history: History) -> None:
        """Begin a history with a state of this moment, between two frames, if there can be one."""
        instance = self.calls.instance
        try:
            with self.calls.fiber.call_guard.kept(self.guest.name):
                saved = instance.save(startup_of(self.guest), is_charged=False)
        except StateRefused:
            history.put_off()
            return
        services = saved.services
        stays = any(one.opened_with is None and not one.run for one in services.sessions)
        awaited = [one.future for one in services.futures]
        if stays or any(not each.is_ready or each.type.has_effect for each in awaited):
            history.put_off()  # a policy or an answer that no other guest can have
            return
        state = FrameState(
            saved,
            instance.statistics,
            frozenset(instance.warned),
            self.world.save(),
            self.experiments.save(),
            tuple((key, tracker.save()) for key, tracker in self._trackers.items()),
            {} if self._limit is None else self._limit.save(),
            self._agents.upcoming,
            self.world.pace.nanoseconds,
            self._left,
        )
        history.begin_with(state)

    def close(self) -> None:
        """Free the instance, and forget its agents."""
        for tracker in self._trackers.values():
            tracker.forget_all()
        self._trackers = {}
        self.pending = None
        self.guest.close()

    def _next_submit(self, frames: int = 0, *, is_suspended: bool = False) -> Session | None:
        """
        Return the session of the next submit that is a step, None where the guest came to its end.

        Its call continues, or the next one begins. `frames` of it have ended already;
        `is_suspended` is True in a request that is served first. Raises GuestError.
        """
        ended = ""
        while True:
            if self._entry is None:
                if self._rebuilt is not None:
                    take, self._rebuilt = self._rebuilt, None
                    take()
                    if self.handed_over is not None:
                        return None
                history = self.history
                if history is not None and history.is_due and ended == self._frame:
                    self._save(history)
                begin = next(self._script, None)
                if begin is None or (not self.is_one_call and self.experiments.has_ended):
                    return None
                self._entry, self._has_submitted = begin(), False
            before = self._words[self._frames] - frames
            is_last = is_suspended or self._messages.waiting or self._rebuilt is not None
            if self.history is not None and self.history.is_due:
                is_last = True
            ahead = 0 if is_last else self._ahead
            session = self.calls.run_to_submit(
                self._entry, self.is_driven, ahead=ahead, is_suspended=is_suspended,
                gives_way=self.gives_way,
            )  # fmt: skip
            if session is not None:
                self._has_submitted = True
                return session
            ended = self._entry.name
            self._entry, is_suspended, frames = None, False, 0
            self._count_frames(frames_between(before, self._words[self._frames]))

    def _count_frames(self, frames: int) -> None:
        """
        Count a call that has ended, or the frames of it that have ended in a loop.

        The frame of the submit is not among them: it was counted when the guest was resumed.
        """
        self._count(max(1, frames) - self._has_submitted)

    def _count(self, calls: int = 1, *, is_new: bool = False) -> None:
        """
        Count calls, or a submit that was answered, and check the time; a new step begins both anew.

        Raises GuestStalled if the step has had too many, or too much of it.
        """
        if is_new:
            self._left = self._idle
            self._until = None if self._seconds is None else time.monotonic() + self._seconds
        if self._left < calls:
            raise GuestStalled(f"{self.guest.name} submitted nothing in {self._idle} calls")
        self._left -= calls
        if self._until is not None and time.monotonic() > self._until:
            raise GuestStalled(f"{self.guest.name} submitted nothing in {self._seconds:g} s")

    def _shown(self, ended: Step | None) -> Step:
        """Return the step of a guest that is in a submit, or the one with which it ended."""
        if ended is not None:
            return ended
        assert self.pending is not None
        return Step((self.pending.decision,))

    def _tracked(self, session: Session) -> AgentTracker:
        """Return a tracker of the agents of a session that had none."""
        kept = self.calls.account.kept_rows
        tracker = self._trackers[session.key] = self._agents.track(self._behavior(session), kept)
        return tracker

    def _refuse(self, session: Session, error: AbiError) -> None:
        """Refuse the submit of a session, and forget a tracker that has nothing which counts."""
        tracker = self._trackers.get(session.key)
        if tracker is not None and not tracker.held:
            del self._trackers[session.key]
        self.calls.refuse(error)
        if self.is_one_call:
            self.world.tick()

    def _answered(self) -> None:
        if self.is_one_call:  # what it submits are its frames
            self.world.tick()
        self.calls.fiber.answer(0)

    def _behavior(self, session: Session) -> Behavior:
        run = self.experiments.of(session.policy)
        if run is not None:
            return run.behavior
        known = (tracker.behavior.name for tracker in self._trackers.values())
        opened = sum(name.startswith("inference") for name in known)
        name = f"inference-{opened + 1}" if opened else "inference"
        assert isinstance(session, InferenceSession)
        widths = session.num_features, session.num_actions
        return Behavior(name, *widths, self._declarations.of_rows(name, *widths))

    def _drop_all(self) -> list[Decision]:
        found = [tracker.truncate_all() for tracker in self._trackers.values()]
        self._trackers = {}
        self.pending = None
        return [decision for decision in found if len(decision)]
