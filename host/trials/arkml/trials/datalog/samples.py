"""The log of a trial, read as one sample for each tick."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.json_format import MessageToDict

from arkml.trials.core.error import TrialError
from arkml.trials.core.mail import Receivers, aggregate
from arkml.trials.core.outputs import EntryKind
from arkml.trials.datalog.database import STATE
from arkml.trials.datalog.reader import MOST_SAMPLE, DatalogReader, LoggedEntry, TrialRecord
from arkml.trials.wire.common_pb2 import Message, Reward, RewardSource, TrialParams
from arkml.trials.wire.environment_pb2 import ObservationSet


class LoggedAction(NamedTuple):
    """
    An action of an actor.

    `note` is one of ActionNote; a held action also has its age in seconds, for example "held
    0.250". `origin` is the policy version or the person that chose the action, empty if unknown.
    """

    content: bytes
    note: str
    origin: str


@dataclass(slots=True)
class TickSample:
    """
    All entries of one tick.

    `rewards` has one aggregated reward for each actor, including rewards that arrived late for this
    tick. `states` are the states that the trial reached during it.
    """

    tick: int
    timestamp: int
    observations: ObservationSet | None = None
    actions: dict[str, LoggedAction] = field(default_factory=dict)
    rewards: dict[str, Reward] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    states: list[str] = field(default_factory=list)


def samples(
    reader: DatalogReader, trial: TrialRecord, params: TrialParams, first_tick: int = 0
) -> Iterator[TickSample]:
    """
    Iterate over the ticks of a trial.

    Args:
        reader: The log.
        trial: A trial in it.
        params: The trial's parameters.
        first_tick: Tick to begin with.

    Raises:
        TrialError: The file is damaged.

    """
    receivers = Receivers(params.actors)
    names = [actor.name for actor in params.actors]
    entries = reader.entries(trial, first_tick)
    for tick, group in groupby(entries, lambda entry: entry.tick):
        sample, total = TickSample(tick, 0), 0
        sources: dict[int, list[RewardSource]] = {}
        for entry in group:
            total += len(entry.content) + len(entry.note) + len(entry.origin) + 256
            if total > MOST_SAMPLE:
                raise TrialError(f"tick {tick} of trial {trial.id!r} has too many entries to show")
            sample.timestamp = sample.timestamp or entry.timestamp
            if entry.kind == EntryKind.REWARD:
                source = reader.parsed(RewardSource, entry.content)
                for actor in receivers.find(entry.name):
                    sources.setdefault(actor, []).append(source)
            else:
                _take(reader, sample, entry)
        for actor, given in sorted(sources.items()):
            sample.rewards[names[actor]] = aggregate(tick, names[actor], given)
        yield sample


def _take(reader: DatalogReader, sample: TickSample, entry: LoggedEntry) -> None:
    match entry.kind:
        case EntryKind.OBSERVATIONS:
            sample.observations = reader.parsed(ObservationSet, entry.content)
            sample.timestamp = entry.timestamp
        case EntryKind.ACTION:
            sample.actions[entry.name] = LoggedAction(entry.content, entry.note, entry.origin)
        case EntryKind.MESSAGE:
            message = Message(
                tick_id=entry.tick,
                sender_name=entry.sender,
                receiver_name=entry.name,
                payload=reader.parsed(AnyMessage, entry.content),
            )
            sample.messages.append(message)
        case EntryKind.EVENT:
            sample.events.append(entry.note)
        case _ if entry.kind == STATE:
            sample.states.append(entry.note)


def document(params: TrialParams) -> dict[str, Any]:
    """Return a trial's parameters as a JSON object, with the field names of the .proto file."""
    made: dict[str, Any] = MessageToDict(params, preserving_proto_field_name=True)
    return made


def observation_in(observed: ObservationSet | None, actor: int, where: str) -> bytes:
    """
    Return the serialized observation of an actor.

    Args:
        observed: The observations of all actors, None if there are none.
        actor: Index of the actor.
        where: Description of the tick, for the error.

    Raises:
        TrialError: The observations are missing or damaged.

    """
    if observed is not None and actor < len(observed.actors_map):
        place = observed.actors_map[actor]
        if 0 <= place < len(observed.observations):
            return observed.observations[place]
    raise TrialError(f"the log is damaged: there is no observation {where}")
