"""One instance of a guest in an environment, stepped from submit to submit."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from arkml.base.closing import Closing
from arkml.batches import Batch, Floats
from arkml.envs.core.agent_tracker import AgentNumbers, AgentTracker
from arkml.envs.core.decisions import Behavior, Decision, InPlace, Step
from arkml.envs.core.declarations import Declarations
from arkml.envs.core.episode_limit import EpisodeLimit
from arkml.envs.core.experiments import Experiments
from arkml.envs.core.submit_loop import Calls, SubmitLoop
from arkml.envs.core.transitions import LISTING
from arkml.envs.core.world import SeededWorld
from arkml.errors import AbiError, GuestError
from arkml.guests.calls import CallLoop, GaveWay
from arkml.guests.frame_loop import FrameCount
from arkml.guests.guest import Guest
from arkml.policies.external import ExternalPolicy
from arkml.runtime.account import WorkKind
from arkml.sessions.session import InferenceSession, Session, TrainingSession

_clock = time.perf_counter


class Pending:
    """
    The submit that a guest is suspended in.

    `rows` holds the rows if they continue the previous submit one by one, or its decision.
    """

    __slots__ = ("_decision", "batch", "rows", "tracker")

    def __init__(self, batch: Batch, tracker: AgentTracker, rows: InPlace | Decision) -> None:
        self.batch = batch
        self.tracker = tracker
        self.rows = rows
        self._decision: Decision | None = None

    @property
    def decision(self) -> Decision:
        """The decision of the submit, made by the first look before the guest is resumed."""
        if self._decision is None:
            rows = self.rows
            self._decision = rows.decision() if isinstance(rows, InPlace) else rows
        return self._decision


class EnvInstance(Closing):
    """
    An instance between two submits.

    Args:
        calls: The loop that serves the guest's calls.
        script: The calls of the guest, from its initializers to its frames.
        experiments: The experiments that the guest has started.
        world: The clock and random numbers.
        declarations: The declarations of its behaviors.
        agents: Gives the agents their numbers.
        frame: The function that is called repeatedly, None if a single call runs everything.
        may_run_ahead: Returns True if there is nothing to do before the next call.
        inference: True if sessions of inference are stepped, None if only without an experiment.
        idle: Calls without a submit that a step may take, see `SubmitLoop`.
        seconds: Seconds that a step may take, see `SubmitLoop`.
        most_steps: The limit of an episode, None for no limit.

    """

    def __init__(
        self,
        calls: CallLoop,
        script: Calls,
        experiments: Experiments,
        world: SeededWorld,
        declarations: Declarations,
        agents: AgentNumbers,
        *,
        frame: str | None,
        may_run_ahead: Callable[[], bool],
        inference: bool | None,
        idle: int,
        seconds: float | None,
        most_steps: int | None = None,
    ) -> None:
        self.calls = calls
        self.guest = Guest(calls)
        self.experiments = experiments
        self.pending: Pending | None = None
        self.world = world
        self.is_one_call: bool = frame is None
        self._declarations = declarations
        self._agents = agents
        self._inference = inference
        self._trackers: dict[int, AgentTracker] = {}
        self._limit = None if most_steps is None else EpisodeLimit(most_steps)
        world.follow(FrameCount(calls))
        self.stepping: SubmitLoop = SubmitLoop(
            calls,
            world.framed(script),
            self.is_driven,
            idle=idle,
            seconds=seconds,
            is_over=lambda: frame is not None and experiments.has_ended,
            may_run_ahead=may_run_ahead,
        )

    def answer(self, values: Floats) -> None:
        """Give the agents that decide their actions, float32, [m, num_actions]."""
        assert self.pending is not None
        self._fill(values, self.pending.tracker.acting_rows)

    def answer_rows(self, values: Floats) -> None:
        """Answer all rows, float32, [rows, num_actions]; the shim skips ended ones."""
        self._fill(values, slice(None))

    def run(self) -> Step:
        """Run to the next submit with a decision; the previous submit must be answered."""
        return self._shown(self.run_to_pending())

    def run_to_pending(self) -> Step | None:
        """Run as `run`, but return None if the guest is in a submit, which is then in `pending`."""
        self.pending = None
        self.stepping.begin()
        return self._through(self.stepping.resume)

    def run_on(self) -> Step:
        """Continue a guest that gave way in `run`, see SubmitLoop."""
        return self._shown(self._through(self.stepping.run_on))

    def look(self) -> Step:
        """Show the submit of a guest that was run, to the session of before, or run on as `run`."""
        self.pending = None
        return self._shown(None) if self.show(self.calls.submitted()) else self.run()

    def reach_submit(self, frames: int, *, has_ended: bool) -> bool:
        """
        Run a guest that ran with others, and is in no submit of a step, to its next one.

        It is at the end of its call, or suspended in a request that is served first, and `frames`
        have ended since its last submit. Returns False if the guest has finished. Raises
        GuestError.
        """
        stepping = self.stepping
        session = stepping.end_call(frames) if has_ended else stepping.take_over(frames)
        self.world.settle()
        return session is not None

    def finish(self) -> Step:
        """Return the step of a guest that came to its end, which truncates its agents."""
        return Step(self._drop_all(), done=True)

    def show(self, session: Session) -> bool:
        """
        Have the guest's submit in `pending`; return False if it is answered already.

        The guest is charged with the time. A submit whose agents are over its limits is refused.
        """
        batch = session.queue.batch()
        if not len(batch):
            self._answered()
            return False
        began = _clock()
        try:
            tracker = self._trackers.get(session.key)
            if tracker is None:
                tracker = self._tracked(session)
            said = session.queue.metadata()
            if said:
                session.note(said)
            is_repeated = tracker.repeat_actions(batch)
            queue = self.calls.submitted_region()
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
        """Return a step that truncates the agents of a guest that failed."""
        return Step(self._drop_all(), error=error)

    def is_driven(self, session: Session) -> bool:
        """Return whether submits of the session are steps."""
        if isinstance(session, TrainingSession):
            return isinstance(session.policy, ExternalPolicy) and session.policy.is_stepped
        if self._inference is not None:
            return self._inference
        return not self.experiments.started

    def limited(self, step: Step) -> Step:
        """Return a step, cut off where an episode is over its limit."""
        return step if self._limit is None else self._limit.limited(step, self._drop_all)

    def close(self) -> None:
        """Free the instance; its agents are forgotten."""
        for tracker in self._trackers.values():
            tracker.forget_all()
        self._trackers = {}
        self.pending = None
        self.guest.close()

    def _through(self, resume: Callable[[], Session | None]) -> Step | None:
        while True:
            try:
                session = resume()
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
            resume = self.stepping.resume

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
        self._tick()

    def _fill(self, values: Floats, rows: Any) -> None:
        """
        Answer these rows of the submit, without ended or unsent rows.

        Values are zeros, as queues begin: once a policy answers a submit of a session, no later
        submit of it is a step.
        """
        pending = self.pending
        assert pending is not None
        batch = pending.batch
        batch.actions[rows] = values
        pending.tracker.keep_actions(batch.actions)
        self._answered()

    def _answered(self) -> None:
        self._tick()
        self.calls.fiber.answer(0)

    def _tick(self) -> None:
        if self.is_one_call:  # what it submits are its frames
            self.world.tick()

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
