"""The samples that a trial sends to its datalog, one for each tick, made of its log entries."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from typing import Final

from google.protobuf.any_pb2 import Any

from arkml.trials.core.hosting import ActionNote
from arkml.trials.core.outputs import Entries, Entry, EntryKind, Logged
from arkml.trials.core.states import ENDED, PENDING
from arkml.trials.wire.common_pb2 import Action, Message, Reward, RewardSource, TrialParams
from arkml.trials.wire.common_pb2 import TrialState as State
from arkml.trials.wire.datalog_pb2 import DatalogSample, SampleInfo
from arkml.trials.wire.environment_pb2 import ObservationSet

NO_ACTION: Final = -2
"""Tick of a missing action."""

OUT_OF_SYNC: Final = "Out of sync reward"
"""Event of a sample that only carries a reward for a tick that was sent before."""

FIELDS: Final = frozenset(field.name for field in DatalogSample.DESCRIPTOR.fields)
"""The fields that `exclude_fields` may name, in any case."""

_REPLACED: Final = {
    str(ActionNote.DEFAULT): "default_actors",
    str(ActionNote.UNAVAILABLE): "unavailable_actors",
}
"""Sample field that lists an actor whose action was replaced, by the note of the log entry."""

_ENTRY_BYTES: Final = 64  # of an entry beside its content, by estimate


class DatalogSamples:
    """
    The samples of one trial, buffered until late rewards can no longer arrive.

    A sample is buffered for `nb_buffered_ticks` of the parameters. All buffered samples together
    take less than four times `most_bytes`; beyond that the oldest is sent early.

    Args:
        params: Parameters of the trial.
        began: Time of the start, in nanoseconds since 1970.
        most_bytes: Maximum size of one sample. Further entries of its tick are left out.

    Attributes:
        unknown: Names in `exclude_fields` that are not fields of a sample.

    """

    def __init__(self, params: TrialParams, began: int, most_bytes: int) -> None:
        excluded = {name.lower() for name in params.datalog.exclude_fields}
        self.unknown: Collection[str] = sorted(excluded - FIELDS)
        self._excluded = excluded & FIELDS
        self._indices = {actor.name: index for index, actor in enumerate(params.actors)}
        self._buffered = params.nb_buffered_ticks
        self._most_bytes = most_bytes - _ENTRY_BYTES  # for the message around the sample
        self._state: State = PENDING
        self._samples: deque[_Sample] = deque()
        self._begin(0, began)

    def take(self, entries: Iterable[Logged]) -> list[DatalogSample]:
        """Add entries in order; return the samples that are due."""
        due: list[DatalogSample] = []
        for entry in entries:
            if isinstance(entry, Entries):
                for row in entry.rows():
                    self._add(row, due, is_hosted=True)
            else:
                self._add(entry, due)
        return due

    def change(self, state: State) -> list[DatalogSample]:
        """Note a new state of the trial; return all remaining samples if the trial has ended."""
        self._state = state
        if state != ENDED:
            return []
        return [self._finished() for _ in range(len(self._samples))]

    def _begin(self, tick: int, timestamp: int) -> None:
        sample = DatalogSample(info=SampleInfo(tick_id=tick, timestamp=timestamp))
        if "actions" not in self._excluded:
            sample.actions.extend(Action(tick_id=NO_ACTION) for _ in self._indices)
        self._samples.append(_Sample(sample, size=_ENTRY_BYTES * (1 + len(sample.actions))))

    def _finished(self) -> DatalogSample:
        """Remove and return the oldest sample. The last one gets the present state."""
        sample = self._samples.popleft().sample
        if not self._samples:
            sample.info.state = self._state
        if "info" in self._excluded:
            sample.ClearField("info")
        return sample

    def _add(self, entry: Entry, due: list[DatalogSample], *, is_hosted: bool = False) -> None:
        if not self._samples:
            return  # the trial has ended
        match entry.kind:
            case EntryKind.OBSERVATIONS:
                self._observe(entry, due)
            case EntryKind.ACTION:
                self._act(entry, is_hosted=is_hosted)
            case EntryKind.REWARD:
                self._reward(entry, due)
            case EntryKind.MESSAGE:
                if "messages" not in self._excluded and self._has_room(entry):
                    message = self._samples[-1].sample.messages.add()
                    message.CopyFrom(_message(entry))
            case EntryKind.EVENT:
                if self._has_room(entry):
                    self._samples[-1].sample.info.special_events.append(entry.note)

    def _observe(self, entry: Entry, due: list[DatalogSample]) -> None:
        """Begin the sample of a tick. The sample of tick 0 exists from the start."""
        last = self._samples[-1].sample
        if last.info.tick_id == entry.tick and not self._samples[-1].is_observed:
            last.info.timestamp = entry.timestamp
        else:
            last.info.state = self._state
            self._begin(entry.tick, entry.timestamp)
        self._samples[-1].is_observed = True
        if "observations" not in self._excluded and self._has_room(entry):
            self._samples[-1].sample.observations.CopyFrom(ObservationSet.FromString(entry.content))
        while len(self._samples) >= self._buffered or (
            len(self._samples) > 1 and self._size() > 4 * self._most_bytes
        ):
            due.append(self._finished())

    def _act(self, entry: Entry, *, is_hosted: bool) -> None:
        sample, index = self._samples[-1].sample, self._indices[entry.name]
        field = _REPLACED.get(entry.note)
        if field is not None and not is_hosted:
            if field not in self._excluded:
                actors = getattr(sample, field)
                actors.append(index)
                actors.sort()
        elif "actions" not in self._excluded and self._has_room(entry):
            action = Action(tick_id=entry.tick, timestamp=entry.timestamp, content=entry.content)
            sample.actions[index].CopyFrom(action)

    def _reward(self, entry: Entry, due: list[DatalogSample]) -> None:
        if "rewards" in self._excluded:
            return
        source = RewardSource.FromString(entry.content)
        reward = Reward(
            tick_id=entry.tick, receiver_name=entry.name, value=source.value, sources=[source]
        )
        place = entry.tick - self._samples[0].sample.info.tick_id
        if place >= 0:
            if self._has_room(entry, place):
                self._samples[place].sample.rewards.add().CopyFrom(reward)
            return
        late = DatalogSample(rewards=[reward])
        if "info" not in self._excluded:
            late.info.out_of_sync = True
            late.info.tick_id, late.info.timestamp = entry.tick, entry.timestamp
            late.info.special_events.append(OUT_OF_SYNC)
        due.append(late)

    def _has_room(self, entry: Entry, place: int = -1) -> bool:
        """Count the bytes of an entry in a sample; return False if it is full, noted once."""
        kept = self._samples[place]
        size = _ENTRY_BYTES + sum(map(len, (entry.content, entry.name, entry.sender, entry.note)))
        if kept.size + size > self._most_bytes:
            if not kept.is_cut:
                kept.is_cut = True
                kept.sample.info.special_events.append(
                    f"entries of this tick beyond {self._most_bytes} bytes are left out"
                )
            return False
        kept.size += size
        return True

    def _size(self) -> int:
        return sum(kept.size for kept in self._samples)


class _Sample:
    """A buffered sample and its size in bytes."""

    __slots__ = ("is_cut", "is_observed", "sample", "size")

    def __init__(self, sample: DatalogSample, size: int) -> None:
        self.sample = sample
        self.size = size
        self.is_observed = self.is_cut = False


def _message(entry: Entry) -> Message:
    return Message(
        tick_id=entry.tick,
        sender_name=entry.sender,
        receiver_name=entry.name,
        payload=Any.FromString(entry.content),
    )
