"""Messages of trials that guests play: observations of slots, rewards, and answers of the guest."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from google.protobuf.any_pb2 import Any

from arkml.arrays import Marks
from arkml.batches import Metadata
from arkml.envs.core.decisions import Decision
from arkml.guest_trials.behavior_actions import varint
from arkml.guest_trials.trial_slots import ABSENT, ClassSlots, SlotRows
from arkml.trials.core.hosting import HostedRewards
from arkml.trials.core.mail import AUTO
from arkml.trials.wire.common_pb2 import CommunicationState, Message
from arkml.trials.wire.environment_pb2 import EnvRunTrialOutput, ObservationSet
from arkml.trials.wire.guest_pb2 import Metadata as MetadataMessage
from arkml.trials.wire.guest_pb2 import SideChannel

CHANNEL: Final = uuid.UUID("6f1f3ac8-0d0b-4d7f-9a55-51de0c2a7f15")
"""The channel of messages from a trial, whose 16 bytes (`bytes_le`) begin each of them."""

_NORMAL = CommunicationState.NORMAL
_PRESENT = b"\x08\x01"
_VALUES, _FINAL_VALUES, _ALLOWED = b"\x12", b"\x3a", b"\x32"
_SENDER, _VALUE, _USER_DATA = b"\x0a", b"\x15", b"\x22"
_ZERO, _CONFIDENT = bytes(4), b"\x1d\x00\x00\x80\x3f"  # a confidence of 1
_AGENT, _EPISODE, _END, _FINAL_END = b"\x18", b"\x20", b"\x28", b"\x40"


class ObservationWriter:
    """
    Writes the observations of the slots of one class, as serialized Observation messages.

    It remembers the last values of each slot, which are shown while its agent is absent.
    """

    def __init__(self, slots: ClassSlots) -> None:
        self._slots = slots
        width = slots.actor_class.behavior.num_features
        self._size = 4 * width
        self._head = _VALUES + varint(self._size) if width else b""
        count = len(slots.agents)
        self._values = [self._head + bytes(self._size)] * count
        self._numbers = [b""] * count
        self._rows: SlotRows | None = None
        self._absent: list[bytes] | None = None

    def write(self, rows: SlotRows, decision: Decision, allowed: Marks | None) -> list[bytes]:
        """
        Return the observation of each slot in a submit of this class.

        Args:
            rows: The rows of the submit by slot.
            decision: The submit.
            allowed: The allowed choices: bool, [rows, choices of all branches], or None if all are
                allowed.

        """
        if rows is not self._rows:
            self._rows = rows
            self._renumber()
        self._absent = None
        data = np.ascontiguousarray(decision.observations, "<f4").tobytes()
        size, head, values, numbers = self._size, self._head, self._values, self._numbers
        masks = None if allowed is None else np.asarray(allowed, np.uint8)
        observed = []
        for slot, row in enumerate(rows.shown):
            if row == ABSENT:
                observed.append(values[slot] + numbers[slot])
                continue
            shown = values[slot] = head + data[row * size : row * size + size]
            content = _PRESENT + shown + numbers[slot]
            if rows.ends[slot]:
                content += _END + varint(rows.ends[slot])
            if masks is not None and not masks[row].all():
                content += _ALLOWED + varint(masks.shape[1]) + masks[row].tobytes()
            if slot in rows.finals:
                final, end = rows.finals[slot]
                last = data[final * size : final * size + size]
                if size:
                    content += _FINAL_VALUES + varint(size) + last
                content += _FINAL_END + varint(end)
            observed.append(content)
        return observed

    def absent(self) -> list[bytes]:
        """Return the observation of each slot in a submit of another class."""
        if self._absent is None:
            pairs = zip(self._values, self._numbers, strict=True)
            self._absent = [values + numbers for values, numbers in pairs]
        return self._absent

    def _renumber(self) -> None:
        slots = self._slots
        self._numbers = [
            (_AGENT + varint(agent) if agent > 0 else b"")
            + (_EPISODE + varint(episode) if episode > 0 else b"")
            for agent, episode in zip(slots.agents, slots.episodes, strict=True)
        ]


def allowed_choices(decision: Decision) -> Marks | None:
    """Return the choices that agents may take, bool, [n, choices of all branches]; None if all."""
    masks = decision.masks
    if not masks or not any(mask.any() for mask in masks):
        return None
    return ~np.concatenate(masks, axis=1)


class RewardWriter:
    """
    Writes the rewards of one class by an environment of the name `sender`.

    Each of their sources is a RewardSource serialized. `actors` has, for each slot, the place of
    its actor in the trial.
    """

    def __init__(self, actors: Sequence[int], sender: str) -> None:
        self._actors = actors
        name = sender.encode()
        self._head = _SENDER + varint(len(name)) + name if name else b""

    def write(self, rows: SlotRows, decision: Decision) -> HostedRewards:
        """
        Return the rewards of a submit, with the metadata of their rows.

        The first row of an episode has a reward only if that is not 0, or has metadata, and if no
        other agent ended in its slot in this submit: then the reward belongs to the other agent. A
        row without a submit, for example of an agent whose guest ended, has none.
        """
        items = _by_row(decision.metadata) if decision.metadata else {}
        values, places = decision.rewards.tolist(), decision.submit_rows.tolist()
        started = decision.started.tolist()
        data = np.ascontiguousarray(decision.rewards, "<f4").tobytes()
        head, actors = self._head, self._actors
        receivers, given, sources = [], [], []
        for row, slot in enumerate(rows.slots):
            value, place = values[row], places[row]
            is_second = started[row] and slot in rows.finals
            is_empty = started[row] and not value and place not in items
            if place < 0 or is_second or is_empty:
                continue
            number = data[4 * row : 4 * row + 4]
            source = head + _CONFIDENT if number == _ZERO else head + _VALUE + number + _CONFIDENT
            if place in items:
                source += _user_data(items[place])
            receivers.append(actors[slot])
            given.append(value)
            sources.append(source)
        return HostedRewards(receivers, given, sources)


def _user_data(items: MetadataMessage) -> bytes:
    packed = Any()
    packed.Pack(items)
    content = packed.SerializeToString()
    return _USER_DATA + varint(len(content)) + content


def _by_row(metadata: Iterable[Metadata]) -> dict[int, MetadataMessage]:
    messages: dict[int, MetadataMessage] = {}
    for item in metadata:
        found = messages.setdefault(item.row, MetadataMessage())
        found.items.add(name=item.name, value=item.value)
    return messages


def observation_set(observations: Sequence[bytes], tick: int) -> ObservationSet:
    """Return an observation for each actor, in a tick that begins now."""
    return ObservationSet(
        tick_id=tick,
        timestamp=time.time_ns(),
        observations=observations,
        actors_map=range(len(observations)),
    )


def answer_of(receiver: str, content: bytes) -> EnvRunTrialOutput:
    """Return the guest's answer to a message of `receiver`."""
    payload = Any()
    payload.Pack(SideChannel(content=content))
    message = Message(tick_id=AUTO, receiver_name=receiver, payload=payload)
    return EnvRunTrialOutput(state=_NORMAL, message=message)
