"""The controller, which starts, ends and watches trials."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Sequence

from google.protobuf.message import Message

from arkml.base.loggers import SafeLogger
from arkml.base.sealed import Sealed
from arkml.trials.core.error import TrialError
from arkml.trials.sdk.trial_info import ActorInfo, TrialInfo, TrialState
from arkml.trials.sdk.trial_parameters import TrialParameters
from arkml.trials.service import PlayersService, TrialService
from arkml.trials.wire.lifecycle_pb2 import TrialInfoRequest, TrialListRequest, TrialStartRequest
from arkml.trials.wire.players_pb2 import Description, View

_log = SafeLogger(__name__)


class Controller(Sealed):
    """
    Controls the trials of one server; `Context.get_controller` returns it.

    Its methods raise TrialError if the server refuses or cannot be reached.

    Args:
        trials: The server's trials.
        players: The server's service for people in trials.
        user_id: Id of the user who starts trials.

    """

    def __init__(self, trials: TrialService, players: PlayersService, user_id: str) -> None:
        self._trials = trials
        self._players = players
        self._user_id = user_id

    def __repr__(self) -> str:
        return f"Controller(user_id={self._user_id!r})"

    def has_specs(self) -> bool:
        """Return True, because a controller needs no settings of a project."""
        return True

    def __await__(self) -> Generator[None, None, Controller]:
        """Return the controller itself, because Cogment's examples await `get_controller`."""
        return self
        yield

    async def start_trial(
        self,
        trial_config: Message | bytes | None = None,
        trial_id_requested: str | None = None,
        trial_params: TrialParameters | None = None,
    ) -> str:
        """
        Start a trial and return its id.

        Args:
            trial_config: Configuration for the pre-trial hooks.
            trial_id_requested: Id for the trial. If it is in use, no trial is started and the
                returned id is empty.
            trial_params: Parameters that replace the server's own, without calling its hooks.

        Raises:
            TrialError: Both a configuration and parameters are given.

        """
        if trial_config is not None and trial_params is not None:
            raise TrialError("Cannot provide both a start config and start parameters")
        request = TrialStartRequest(
            user_id=self._user_id, trial_id_requested=trial_id_requested or ""
        )
        if isinstance(trial_config, bytes):
            request.config.content = trial_config
        elif trial_config is not None:
            request.config.content = trial_config.SerializeToString()
        elif trial_params is not None:
            request.params.CopyFrom(trial_params.raw_params)
        reply = await self._trials.start(request)
        if not reply.trial_id:
            _log.warning("Requested trial id [%s] could not be used", trial_id_requested)
        return reply.trial_id

    async def terminate_trial(self, trial_ids: Sequence[str], hard: bool = False) -> None:
        """
        Request the end of trials.

        With `hard` they end at once; otherwise after the next complete set of actions and the final
        observations. Raises TrialError if no id is given.
        """
        ids = _ids(trial_ids)
        if not ids:
            raise TrialError("terminate_trial needs the id of at least one trial")
        await self._trials.terminate(ids, is_hard=hard)

    async def get_trial_info(self, trial_ids: Sequence[str] | None = ()) -> list[TrialInfo]:
        """Return the details of trials, by default of all live and recently ended ones."""
        reply = await self._trials.info(_ids(trial_ids or ()), TrialInfoRequest())
        return [TrialInfo.of(info) for info in reply.trial]

    async def watch_trials(
        self, trial_state_filters: Sequence[TrialState] = (), full_info: bool = False
    ) -> AsyncGenerator[TrialInfo, bool | None]:
        """
        Iterate over the present states of all trials, and then over their changes.

        The iteration ends when it is sent False.

        Args:
            trial_state_filters: States to report, for example `[TrialState.ENDED]`; all if empty.
            full_info: Whether each item has all details, instead of the id and the state alone.

        Raises:
            TrialError: A filter is not a TrialState.

        """
        for state in trial_state_filters:
            if not isinstance(state, TrialState):
                raise TrialError(f"filter {state!r} is not a TrialState")
        filters = [int(state) for state in trial_state_filters]
        entries = self._trials.watch(
            TrialListRequest(filter=filters, full_info=full_info)  # type: ignore[arg-type]
        )
        try:
            async for entry in entries:
                if entry.HasField("info"):
                    info = TrialInfo.of(entry.info)
                else:
                    info = TrialInfo(entry.trial_id, TrialState(entry.state))
                is_continued = yield info
                if is_continued is not None and not is_continued:
                    return
        finally:
            if isinstance(entries, AsyncGenerator):
                await entries.aclose()

    async def get_actors(self, trial_id: str) -> list[ActorInfo]:
        """Return the actors of a trial. Raises TrialError for an unknown id."""
        reply = await self._trials.info([trial_id], TrialInfoRequest(get_actor_list=True))
        for info in reply.trial:
            if info.trial_id == trial_id:
                return [ActorInfo(actor.name, actor.actor_class) for actor in info.actors_in_trial]
        raise TrialError(f"Unknown trial [{trial_id}]")

    async def describe(self) -> Description:
        """
        Return a description of the server: the guest that its trials play, and its live trials.
        """
        return await self._players.describe()

    async def look(self, trial_id: str) -> AsyncGenerator[View, bool | None]:
        """
        Iterate over the ticks of a hosted trial until it ends, or the iteration is sent False.

        A slow reader misses ticks. A View lists players, rewards and encoded Actions of the tick
        before by actor, in trial order. Its observations are an ObservationSet of encoded
        Observations; the types are in `guest.proto`.
        """
        views = self._players.look(trial_id)
        try:
            async for view in views:
                is_continued = yield view
                if is_continued is not None and not is_continued:
                    return
        finally:
            if isinstance(views, AsyncGenerator):
                await views.aclose()

    async def get_remote_versions(self) -> dict[str, str]:
        """Return the version of each component of the server, by name."""
        return await self._trials.versions()


def _ids(trial_ids: Sequence[str]) -> list[str]:
    return [trial_ids] if isinstance(trial_ids, str) else list(trial_ids)
