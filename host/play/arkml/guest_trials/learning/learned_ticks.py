"""
Ticks of the actors of a hosted trial, made from the entries of its log.

Learning while a trial runs and exporting from the log later use the same entries and the code of
this package, so they produce the same rows. An environment and a server only have to log:

- the observations of each tick, as arkmlTrials.Observation;
- the actions, as arkmlTrials.Action, with `Acted.noted` as their note and their origin;
- the rewards, before the observations that they led to;
- the action spaces of all classes, in the GuestConfig of the environment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple, TypeVar

from google.protobuf.message import DecodeError

from arkml.trials.core.error import TrialError
from arkml.trials.core.mail import Receivers, aggregate
from arkml.trials.core.outputs import Entry, EntryKind
from arkml.trials.datalog.reader import LoggedEntry
from arkml.trials.datalog.samples import LoggedAction, observation_in
from arkml.trials.wire.common_pb2 import RewardSource, TrialParams
from arkml.trials.wire.environment_pb2 import ObservationSet
from arkml.trials.wire.guest_pb2 import Observation

M = TypeVar("M", ObservationSet, RewardSource, Observation)


class SlotTick(NamedTuple):
    """
    One tick of a trial for one slot, the place of an agent of the guest.

    Attributes:
        actor: The index of the slot's actor.
        observation: The observation of the tick.
        own: The guest's reward that led to the observation.
        aggregated: The reward of all senders that led to the observation.
        action: The action of the tick, None in the last tick of a trial.

    """

    actor: int
    observation: Observation
    own: float
    aggregated: float
    action: LoggedAction | None


class TrialTicks:
    """
    Collects the entries of one trial, in the order in which they were added.

    A tick is complete once the observations of the next tick come, or the trial ends. `actors` are
    the indices of the actors whose ticks are wanted.
    """

    def __init__(self, params: TrialParams, actors: Iterable[int]) -> None:
        self._actors = tuple(actors)
        self._names = [actor.name for actor in params.actors]
        self._indices = {name: index for index, name in enumerate(self._names)}
        self._environment = params.environment.name
        self._receivers = Receivers(params.actors)
        self._tick = -1
        self._observed: ObservationSet | None = None
        self._actions: dict[int, LoggedAction] = {}
        self._sources: dict[int, list[RewardSource]] = {}
        self._led: dict[int, list[RewardSource]] = {}  # rewards that led to the observations

    def add(self, entry: Entry | LoggedEntry) -> list[SlotTick]:
        """
        Add an entry, and return the ticks of the actors that it completes.

        Raises TrialError for an entry that cannot be parsed.
        """
        if entry.kind == EntryKind.OBSERVATIONS:
            complete = self.end()
            self._observed = _parsed(ObservationSet(), entry.content)
            self._tick = entry.tick
            return complete
        if entry.tick != self._tick:  # rewards of earlier ticks are for the log alone
            return []
        if entry.kind == EntryKind.ACTION and entry.name in self._indices:
            action = LoggedAction(entry.content, entry.note, entry.origin)
            self._actions[self._indices[entry.name]] = action
        elif entry.kind == EntryKind.REWARD:
            source = _parsed(RewardSource(), entry.content)
            for actor in self._receivers.find(entry.name):
                self._sources.setdefault(actor, []).append(source)
        return []

    def end(self) -> list[SlotTick]:
        """Return the last tick of each actor, after the end of the trial."""
        observed, actions, led = self._observed, self._actions, self._led
        self._observed, self._actions = None, {}
        self._led, self._sources = self._sources, {}
        if observed is None:
            return []
        return [
            SlotTick(
                actor,
                self._observation(observed, actor),
                self._reward(actor, [one for one in led.get(actor, ()) if self._is_own(one)]),
                self._reward(actor, led.get(actor, ())),
                actions.get(actor),
            )
            for actor in self._actors
        ]

    def _observation(self, observed: ObservationSet, actor: int) -> Observation:
        where = f"of actor {self._names[actor]!r} in tick {self._tick}"
        return _parsed(Observation(), observation_in(observed, actor, where))

    def _is_own(self, source: RewardSource) -> bool:
        return source.sender_name == self._environment

    def _reward(self, actor: int, sources: Iterable[RewardSource]) -> float:
        return aggregate(self._tick, self._names[actor], sources).value if sources else 0.0


def in_order(entries: Iterable[LoggedEntry]) -> Iterator[LoggedEntry]:
    """
    Yield the entries of a trial by tick, without late rewards.

    A reward is late if it was logged after the observations of the next tick.
    """
    earlier: list[LoggedEntry] = []
    for _, group in groupby(entries, lambda entry: entry.tick):
        present = list(group)
        observed = [one.number for one in present if one.kind == EntryKind.OBSERVATIONS]
        yield from (one for one in earlier if not observed or one.number < observed[0])
        earlier = present
    yield from earlier


def _parsed(message: M, content: bytes) -> M:
    try:
        message.ParseFromString(content)
    except DecodeError:
        kind = type(message).__name__
        raise TrialError(f"{content[:20]!r} cannot be parsed as a {kind}") from None
    return message
