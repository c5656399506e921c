"""The session of a datalog, and the samples of its trial."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from arkml.base.loggers import SafeLogger
from arkml.base.sealed import Sealed
from arkml.trials.core.error import TrialError
from arkml.trials.sdk.session_events import (
    ActorStatus,
    RecvAction,
    RecvMessage,
    RecvObservation,
    RecvReward,
)
from arkml.trials.sdk.trial_info import TrialState
from arkml.trials.sdk.trial_parameters import TrialParameters
from arkml.trials.wire.datalog_pb2 import DatalogSample

_log = SafeLogger(__name__)

MOST_UNREAD: Final = 1_000
"""Maximum number of unread samples; beyond it the trial waits for the implementation."""

M = TypeVar("M", bound=Message)

_SERIALIZATION: Final = 2
"""Number of Cogment's format of serialized samples."""


class LogSample(Sealed):
    """
    One tick of a trial, as its server logs it.

    Attributes for fields that the trial's parameters exclude are None. `timestamp` is in
    nanoseconds since 1970, `events` are sentences, `params` are the parameters of the trial. If
    `out_of_sync` is true, the sample has only rewards, for a tick whose sample was sent before.
    """

    def __init__(self, params: TrialParameters) -> None:
        self.tick_id: int | None = None
        self.out_of_sync: bool | None = None
        self.timestamp: int | None = None
        self.state: TrialState | None = None
        self.events: list[str] | None = None
        self._params = params
        self._sample = DatalogSample()

    @classmethod
    def of(cls, params: TrialParameters, sample: DatalogSample) -> LogSample:
        """
        Return a sample from the message that the datalog received.

        `params` are the parameters of the trial.
        """
        made = cls(params)
        made._take(sample)
        return made

    def __repr__(self) -> str:
        return f"LogSample(tick_id={self.tick_id}, state={self.state!r})"

    def get_serialization_type(self) -> int:
        """Return the number of the format that `serialize` writes."""
        return _SERIALIZATION

    def serialize(self) -> bytes:
        """Return the sample as bytes, a serialized protobuf message."""
        return self._sample.SerializeToString()

    def deserialize(self, raw_string: bytes) -> None:
        """Read a sample that `serialize` has written. Raises TrialError for other bytes."""
        try:
            self._take(DatalogSample.FromString(raw_string))
        except (DecodeError, TypeError) as error:
            raise TrialError(f"the bytes are not a sample of a trial: {error}") from error

    def all_actor_names(self) -> Iterator[str]:
        """Iterate over the names of the actors, in trial order."""
        return iter([actor.name for actor in self._params.actors])

    def get_action(self, actor: int | str) -> RecvAction | None:
        """
        Return the action of an actor, given by index or name; None without actions.

        Raises TrialError for an unknown actor, and for an action that cannot be read.
        """
        index, sample = self._index(actor), self._sample
        if not sample.actions:
            return None
        sent = sample.actions[index]
        replaced = {
            ActorStatus.UNAVAILABLE: sample.unavailable_actors,
            ActorStatus.DEFAULT: sample.default_actors,
        }
        for status, actors in replaced.items():
            if index in actors:
                return RecvAction(index, sent.tick_id, status, 0, None)
        spec = self._params.actors[index].actor_class_spec
        action = None if spec is None else _parsed(spec.action_space, sent.content)
        return RecvAction(index, sent.tick_id, ActorStatus.ACTIVE, sent.timestamp, action)

    def get_observation(self, actor: int | str) -> RecvObservation | None:
        """
        Return the observation of an actor, given by index or name; None without observations.

        Raises TrialError for an unknown actor, and for an observation that cannot be read.
        """
        index, sample = self._index(actor), self._sample
        if not sample.HasField("observations"):
            return None
        observed = sample.observations
        content = observed.observations[observed.actors_map[index]]
        spec = self._params.actors[index].actor_class_spec
        observation = None if spec is None else _parsed(spec.observation_space, content)
        return RecvObservation(observed.tick_id, observed.timestamp, observation)

    def all_rewards(self) -> Iterator[RecvReward]:
        """Iterate over the rewards of the tick, each as its sender sent it."""
        return map(RecvReward.of, self._sample.rewards)

    def all_messages(self) -> Iterator[RecvMessage]:
        """Iterate over the messages that were sent in the tick."""
        return map(RecvMessage.of, self._sample.messages)

    def _take(self, sample: DatalogSample) -> None:
        """Take a sample. Raises TrialError unless it is one of a trial with these parameters."""
        actors, places = len(self._params.actors), sample.observations.actors_map
        count = len(sample.observations.observations)
        if sample.actions and len(sample.actions) != actors:
            raise TrialError(f"a sample has {len(sample.actions)} actions for {actors} actors")
        if sample.HasField("observations") and len(places) != actors:
            raise TrialError(f"a sample has {len(places)} observations for {actors} actors")
        if any(not 0 <= place < count for place in places):
            raise TrialError(
                f"the actors_map of a sample names an observation that is not one of its {count}"
            )
        self._sample = sample
        if sample.HasField("info"):
            info = sample.info
            self.tick_id, self.timestamp = info.tick_id, info.timestamp
            self.out_of_sync, self.state = info.out_of_sync, TrialState(info.state)
            self.events = list(info.special_events)

    def _index(self, actor: int | str) -> int:
        names = [one.name for one in self._params.actors]
        if isinstance(actor, str) and actor in names:
            return names.index(actor)
        if isinstance(actor, int) and 0 <= actor < len(names):
            return actor
        raise TrialError(f"Invalid actor [{actor}]: the trial has {', '.join(names) or 'none'}")


def _parsed(kind: type[M], content: bytes) -> M:
    try:
        return kind.FromString(content)
    except DecodeError as error:
        name = kind.DESCRIPTOR.full_name
        raise TrialError(f"a sample has {len(content)} bytes that are not a {name}") from error


class DatalogSession(Sealed):
    """
    The samples of one trial, given to the implementation of a datalog.

    At most 1,000 samples wait to be read; beyond that the trial waits.

    Args:
        trial_id: Id of the trial.
        user_id: Id of the user who started it.
        trial_parameters: Parameters of the trial.

    """

    def __init__(self, trial_id: str, user_id: str, trial_parameters: TrialParameters) -> None:
        self.trial_id = trial_id
        self.user_id = user_id
        self.trial_parameters = trial_parameters
        self._samples: asyncio.Queue[LogSample | TrialError | None] = asyncio.Queue(MOST_UNREAD)
        self._is_started = False

    def __repr__(self) -> str:
        return f"DatalogSession(trial_id={self.trial_id!r}, user_id={self.user_id!r})"

    def start(self) -> None:
        """Begin to receive samples, before any other method is called."""
        self._is_started = True

    async def all_samples(self) -> AsyncGenerator[LogSample, bool | None]:
        """
        Iterate over the samples until the trial has ended, or the iteration is sent False.

        Raises TrialError if a message does not belong to the trial: the log ends with it.
        """
        if not self._is_started:
            _log.warning("Cannot retrieve samples until the datalog session is started.")
            return
        while (sample := await self._samples.get()) is not None:
            if isinstance(sample, TrialError):
                raise sample
            is_continued = yield sample
            if is_continued is not None and not is_continued:
                return

    def get_all_samples(self) -> AsyncGenerator[LogSample, bool | None]:
        """Return `all_samples()`, under its older name."""
        return self.all_samples()

    async def take(self, sample: DatalogSample | TrialError | None) -> None:
        """Queue a sample as soon as there is room; an error or None ends the log."""
        made: LogSample | TrialError | None
        if isinstance(sample, DatalogSample):
            try:
                made = LogSample.of(self.trial_parameters, sample)
            except TrialError as error:
                made = error
        else:
            made = sample
        await self._samples.put(made)
