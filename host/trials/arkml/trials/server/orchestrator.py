"""All trials of a server: starting, describing and ending them."""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from collections.abc import AsyncIterator, Coroutine, Sequence
from importlib import metadata
from typing import Any, Protocol, TypeVar

from arkml.base.loggers import SafeLogger
from arkml.base.release import RELEASE
from arkml.trials.core.error import TrialError
from arkml.trials.core.hosting import Hosting, is_hosted
from arkml.trials.core.outputs import Logged
from arkml.trials.core.parameters import LEAST_BUFFERED_TICKS, TrialEndpoint, checked
from arkml.trials.core.states import ENDED, INITIALIZING, PENDING
from arkml.trials.core.trial import Trial
from arkml.trials.server.kept_trials import EndedTrial, KeptTrials
from arkml.trials.server.server_options import TrialsOptions
from arkml.trials.server.trial_task import TrialTask
from arkml.trials.server.watchers import Watchers
from arkml.trials.service import Callers
from arkml.trials.streams import Receiver, Sender
from arkml.trials.wire.actor_pb2 import ActorInitialOutput, ActorRunTrialInput, ActorRunTrialOutput
from arkml.trials.wire.common_pb2 import TrialParams, TrialState
from arkml.trials.wire.hooks_pb2 import PreTrialParams
from arkml.trials.wire.lifecycle_pb2 import (
    TrialInfo,
    TrialInfoReply,
    TrialInfoRequest,
    TrialListEntry,
    TrialListRequest,
    TrialStartReply,
    TrialStartRequest,
)

T = TypeVar("T")

log = SafeLogger(__name__)

API_VERSION = "2.0.0"
"""Version of Cogment's protocol."""

_ENDING = "the server is ending"
_MOST_ID = 256
_TRIAL_ID = re.compile(rf"(?! )[ -+\--~]{{1,{_MOST_ID}}}(?<! )")  # metadata join ids by commas


class TrialLog(Protocol):
    """A log of trials, for example a Datalog. Its methods never wait."""

    @property
    def failure(self) -> str:
        """Reason why the log cannot be written, empty if it can."""

    def begin(self, trial_id: str, user_id: str, params: TrialParams, began: int) -> None:
        """
        Add a trial to the log.

        Args:
            trial_id: Id of the trial.
            user_id: Id of the user who started it.
            params: Parameters of the trial.
            began: Time of the start, in nanoseconds since 1970.

        """

    def add(self, trial_id: str, *entries: Logged) -> None:
        """Add entries of a trial to the log, in order."""

    def state(self, trial_id: str, state: TrialState, timestamp: int) -> None:
        """
        Add a new state of a trial to the log.

        Args:
            trial_id: Id of the trial.
            state: The state.
            timestamp: Time of the change, in nanoseconds since 1970.

        """

    def end(self, trial_id: str, ended: int, reason: str) -> None:
        """
        Add the end of a trial to the log.

        Args:
            trial_id: Id of the trial.
            ended: Time of the end, in nanoseconds since 1970.
            reason: Why the trial was cut off, or empty.

        """


class Orchestrator:
    """
    The trials of one server; implements TrialService.

    Belongs to one event loop. An ended trial stays visible until `TrialLimits.ended_kept` others
    have ended after it, or its memory is needed for live trials.

    Args:
        options: Options of the server.
        callers: Opens streams to environments, actors and datalogs, and calls hooks.
        trial_log: Log that receives the entries of all trials, None for none.
        hosting: Environments that run in this process, None for none.

    """

    def __init__(
        self,
        options: TrialsOptions,
        callers: Callers,
        trial_log: TrialLog | None = None,
        hosting: Hosting | None = None,
    ) -> None:
        self.options = options
        self._callers = callers
        self._log = trial_log
        self._hosting = hosting
        self._live: dict[str, TrialTask] = {}
        self._kept = KeptTrials(options.limits.ended_kept)
        self._ended = self._kept.ended
        self._preparing: dict[str, asyncio.Task[Any]] = {}
        self._watchers = Watchers(self._describe)
        self._is_closing = False
        self._all_over = asyncio.Event()

    @property
    def is_logging(self) -> bool:
        """True if trials are written to a log."""
        return self._log is not None

    # TrialService

    async def start(self, request: TrialStartRequest) -> TrialStartReply:
        """
        Start a trial; the reply has an empty id if the requested id is in use.

        Raises TrialError if the server refuses.
        """
        if self._is_closing:
            raise TrialError("the server is ending: it starts no trials")
        if self._log is not None and self._log.failure:
            raise TrialError(f"trials cannot be logged: {self._log.failure}")
        if len(self._live) >= self.options.limits.live_trials:
            raise TrialError(f"there are {len(self._live)} trials already, the most that may be")
        wanted = request.trial_id_requested
        if wanted and (wanted in self._live or wanted in self._ended):
            return TrialStartReply()
        if wanted and not _TRIAL_ID.fullmatch(wanted):
            raise TrialError(
                f"{wanted[:50]!r} cannot be the id of a trial: it needs at most {_MOST_ID}"
                " printable characters of ASCII without ',' and spaces around it"
            )
        given = request.params if request.WhichOneof("start_data") == "params" else None
        if given is not None:
            given = self._checked(given)
        trial = Trial(wanted or str(uuid.uuid4()), request.user_id, is_logged=self._log is not None)
        task = TrialTask(trial, self._callers, self, self._hosting)
        self._live[trial.id] = task
        self._watchers.change(trial, trial.state)
        try:
            if given is None:
                params = await self._while_live(trial, self._hooked(trial, request))
            else:
                params = given
            self._kept.begin(trial.id, params.ByteSize() + len(request.user_id.encode()))
            if params.datalog.endpoint:
                opening = task.open_datalog(params, self.options.limits.message_bytes)
                await self._while_live(trial, opening)
            hosting = self._hosting_of(params)
            pacing = None if hosting is None else hosting.pacing(params)
        except asyncio.CancelledError:
            task.terminate(is_hard=True, reason="its start was cancelled by the caller")
            raise
        except BaseException as error:
            task.terminate(is_hard=True, reason=str(error) or type(error).__name__)
            raise
        if self._log is not None:
            self._log.begin(trial.id, trial.user_id, params, trial.began)
        task.begin(params, pacing)
        return TrialStartReply(trial_id=trial.id)

    async def terminate(self, trial_ids: Sequence[str], *, is_hard: bool) -> None:
        """
        Request the end of trials that have not ended yet; with `is_hard` they end at once.

        Raises TrialError for an unknown id.
        """
        if not trial_ids:
            raise TrialError("no trial is named: its id goes into the metadata trial-id")
        unknown = [one for one in trial_ids if one not in self._live and one not in self._ended]
        if unknown:
            raise TrialError(f"there is no trial {unknown[0]!r}")
        for trial_id in trial_ids:
            task = self._live.get(trial_id)
            if task is not None:
                task.terminate(is_hard=is_hard)

    async def info(self, trial_ids: Sequence[str], request: TrialInfoRequest) -> TrialInfoReply:
        """
        Return the details of the trials with these ids, or of all trials if there are no ids.

        Unknown ids are left out. Raises TrialError for more than fits into a message.
        """
        wanted = set(trial_ids)
        trials = [one for one in self._trials() if not wanted or one.id in wanted]
        reply, size, most = TrialInfoReply(), 0, self.options.limits.message_bytes
        for trial in trials:
            info = self._describe(trial)
            latest = trial.latest if request.get_latest_observation else None
            if latest is not None:
                info.latest_observation.CopyFrom(latest)
            if request.get_actor_list:
                info.actors_in_trial.extend(trial.trial_actors())
            size += info.ByteSize()
            if size > most:
                raise TrialError(
                    f"the details of {len(trials)} trials take more than {most} bytes, the most of"
                    " a message (message_bytes): ask for fewer, by the metadata trial-id"
                )
            reply.trial.append(info)
        return reply

    def watch(self, request: TrialListRequest) -> AsyncIterator[TrialListEntry]:
        """Iterate over the present states of all trials, and then over each change, without end."""
        return self._watchers.watch(request, self._trials)

    async def join(
        self, trial_id: str, slot: ActorInitialOutput, sender: Sender[ActorRunTrialInput]
    ) -> Receiver[ActorRunTrialOutput]:
        """
        Join a trial as an actor, waiting while the trial is INITIALIZING.

        Args:
            trial_id: Id of the trial.
            slot: Name or class of the actor.
            sender: Stream to the actor. The trial sends init_input first.

        Returns:
            The stream to the trial.

        Raises:
            TrialError: The actor cannot join.

        """
        return await self.live(trial_id).join(slot, sender)

    async def versions(self) -> dict[str, str]:
        """Return the version of each component of the server, by name."""
        return {
            "orchestrator": RELEASE,
            "cogment-api": API_VERSION,
            "grpc": metadata.version("grpcio"),
        }

    # The server's own

    def live(self, trial_id: str) -> TrialTask:
        """Return the task of a trial that has not ended. Raises TrialError if there is none."""
        task = self._live.get(trial_id)
        if task is not None:
            return task
        if trial_id in self._ended:
            raise TrialError(f"trial {trial_id} has ended")
        raise TrialError(f"there is no trial {trial_id!r}")

    def live_trials(self) -> list[Trial]:
        """Return the trials that have not ended, oldest first."""
        return [task.trial for task in self._live.values()]

    def statuses(self, names: Sequence[str]) -> dict[str, str]:
        """Return the requested facts about the server by name; the name `"*"` requests all."""
        share = len(self._live) / self.options.limits.live_trials
        known = {"overall_load": str(round(100 * share))}
        return {name: text for name, text in known.items() if name in names or "*" in names}

    def end_running(self, reason: str) -> None:
        """
        Request a soft end of all running trials, and end trials that do not run yet at once.

        `reason` is the reason of their ends, and may be empty.
        """
        for task in list(self._live.values()):
            if task.trial.state in (INITIALIZING, PENDING):
                task.terminate(is_hard=True, reason=reason or _ENDING)
            else:
                task.terminate(is_hard=False, reason=reason)

    async def close(self, seconds: float) -> None:
        """
        Refuse new trials, request a soft end of all, and end the rest at once after `seconds`.
        """
        self._is_closing = True
        self.end_running("")
        if not self._live:
            self._all_over.set()
        try:
            async with asyncio.timeout(seconds):
                await self._all_over.wait()
        except TimeoutError:
            pass
        for task in list(self._live.values()):
            task.terminate(is_hard=True, reason=_ENDING)
        self._watchers.close()

    # TrialEvents

    def changed(self, trial: Trial, state: TrialState) -> None:
        """Handle a new state of a trial."""
        self._watchers.change(trial, state)
        trial_log = self._log if trial.actors else None  # unlogged until it has parameters
        if trial_log is not None:
            trial_log.state(trial.id, state, trial.ended)
        if state != ENDED:
            return
        if trial_log is not None:
            trial_log.end(trial.id, trial.ended, trial.reason)
        log.info("trial %s ended in tick %d: %s", trial.id, trial.tick, trial.reason or "orderly")
        self._live.pop(trial.id, None)
        if trial.id in self._preparing:
            self._preparing[trial.id].cancel()
        self._kept.end(
            EndedTrial(
                trial.id,
                trial.state,
                trial.reason,
                self._describe(trial),
                trial.latest,
                trial.trial_actors(),
            )
        )
        if self._is_closing and not self._live:
            self._all_over.set()

    def entries(self, trial: Trial, entries: Sequence[Logged]) -> None:
        """Add log entries of a trial to the log of trials."""
        if self._log is not None:
            self._log.add(trial.id, *entries)

    def notice(self, trial: Trial, text: str, *, is_warning: bool) -> None:
        """
        Log a sentence about a trial for the operator of the server.

        Args:
            trial: The trial.
            text: The sentence.
            is_warning: Whether to log it as a warning.

        """
        log.log(logging.WARNING if is_warning else logging.INFO, "trial %s: %s", trial.id, text)

    # Parts

    async def _while_live(self, trial: Trial, work: Coroutine[Any, Any, T]) -> T:
        """Return what `work` for a new trial does. Raises TrialError as soon as the trial ends."""
        preparing = asyncio.create_task(work)
        self._preparing[trial.id] = preparing
        try:
            result = await preparing
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if not trial.is_over or (current is not None and current.cancelling()):
                raise
        finally:
            del self._preparing[trial.id]
        if trial.is_over:  # also if it has ended since the work was done
            raise TrialError(f"trial {trial.id}: {trial.reason}")
        return result

    async def _hooked(self, trial: Trial, request: TrialStartRequest) -> TrialParams:
        """Return the parameters of a trial after all hooks."""
        params = TrialParams()
        params.CopyFrom(self.options.params)
        if request.WhichOneof("start_data") == "config":
            params.trial_config.CopyFrom(request.config)
        for hook in self.options.hooks:
            try:
                async with asyncio.timeout(self.options.limits.hook_seconds):
                    reply = await self._callers.pre_trial(
                        TrialEndpoint.parse(hook),
                        PreTrialParams(params=params),
                        trial.id,
                        request.user_id,
                    )
            except TimeoutError:
                seconds = self.options.limits.hook_seconds
                raise TrialError(
                    f"Pre-trial hook failure [{hook} did not answer within {seconds:g} s]"
                ) from None
            except TrialError as error:
                raise TrialError(f"Pre-trial hook failure [{error}]") from error
            params = reply.params
        return self._checked(params)

    def _hosting_of(self, params: TrialParams) -> Hosting | None:
        return self._hosting if is_hosted(params) else None

    def _checked(self, params: TrialParams) -> TrialParams:
        hosting = self._hosting_of(params)
        if hosting is not None:
            params = hosting.completed(params)
        if params.nb_buffered_ticks and params.nb_buffered_ticks < LEAST_BUFFERED_TICKS:
            text = "nb_buffered_ticks is %d: %d, the fewest, are kept"
            log.warning(text, params.nb_buffered_ticks, LEAST_BUFFERED_TICKS)
        return checked(params, self.options.classes)

    def _trials(self) -> list[Trial | EndedTrial]:
        return [*self._ended.values(), *self.live_trials()]

    def _describe(self, trial: Trial | EndedTrial) -> TrialInfo:
        if isinstance(trial, EndedTrial):
            copy = TrialInfo()
            copy.CopyFrom(trial.info)
            return copy
        return TrialInfo(
            trial_id=trial.id,
            state=trial.state,
            env_name=trial.environment.name,
            tick_id=trial.tick,
            trial_duration=trial.duration,
            properties=trial.params.properties,
        )
