"""
One class of actors of a trial: agents in slots, their messages, and actions offered to them.

Each slot holds an agent of the guest until its episode ends. Its actor is sent the observations and
rewards of that agent, and answers with actions, in place of the ones that stand-ins offer.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from google.protobuf.any_pb2 import Any as AnyMessage

from arkml.abi.codes import EpisodeState
from arkml.arrays import Marks
from arkml.batches import Floats, Metadata
from arkml.envs.core.decisions import Decision
from arkml.errors import GuestError
from arkml.guest_trials.behavior_actions import ActionRule, varint
from arkml.guest_trials.guest_trials_options import StandInActions, StandInRows
from arkml.guest_trials.probe import GuestClass
from arkml.trials.core.hosting import Acted, HostedRewards, StandIn
from arkml.trials.core.mail import AUTO
from arkml.trials.wire.common_pb2 import CommunicationState, Message
from arkml.trials.wire.environment_pb2 import EnvRunTrialOutput
from arkml.trials.wire.guest_pb2 import Metadata as MetadataMessage
from arkml.trials.wire.guest_pb2 import SideChannel

ABSENT: Final = -1
"""The row of a slot that a submit says nothing about."""

_SET: Final = b"\x01"

RUNS_ON, TERMINATED, TRUNCATED = range(3)
"""The ends of an episode, as EpisodeEnd of guest.proto numbers them."""

CHANNEL: Final = uuid.UUID("6f1f3ac8-0d0b-4d7f-9a55-51de0c2a7f15")
"""The channel of messages from a trial, whose 16 bytes (`bytes_le`) begin each of them."""

_NORMAL = CommunicationState.NORMAL
_PRESENT = b"\x08\x01"
_VALUES, _FINAL_VALUES, _ALLOWED = b"\x12", b"\x3a", b"\x32"
_SENDER, _VALUE, _USER_DATA = b"\x0a", b"\x15", b"\x22"
_ZERO, _CONFIDENT = bytes(4), b"\x1d\x00\x00\x80\x3f"  # a confidence of 1
_AGENT, _EPISODE, _END, _FINAL_END = b"\x18", b"\x20", b"\x28", b"\x40"
_STATES = np.array([EpisodeState.RUNNING, EpisodeState.INITIAL], np.uint32)


@dataclass(slots=True)
class SlotRows:
    """
    The rows of one submit, assigned to the slots of an actor class.

    Attributes:
        slots: The slot of each row.
        shown: The row that each slot shows, or ABSENT.
        ends: How the episode of the shown row ended, by slot.
        finals: By slot, an agent's last row and how it ended, if another agent took its slot in
            this submit.
        deciding: The slots of the agents that wait for an action, in push order.
        started: For each slot in `deciding`, 1 if this is its agent's first row.

    """

    shown: list[int]
    ends: list[int]
    slots: list[int]
    finals: dict[int, tuple[int, int]] = field(default_factory=dict)
    deciding: list[int] = field(default_factory=list)
    started: list[int] = field(default_factory=list)


class ClassSlots:
    """
    Agents of one class in the slots of a trial.

    An agent takes the lowest free slot and keeps it until its episode ends; `agents` and `episodes`
    are the numbers of the last agent and episode of each slot, -1 before the first.
    """

    def __init__(self, actor_class: GuestClass) -> None:
        self.actor_class: GuestClass = actor_class
        count = actor_class.slots
        self.agents: list[int] = [-1] * count
        self.episodes: list[int] = [-1] * count
        self.has_ended: bool = False
        """True once an episode has ended."""
        self._slots: dict[int, int] = {}
        self._steady: tuple[bytes, SlotRows] | None = None

    @property
    def has_begun(self) -> bool:
        """True once the class has had an agent."""
        return self.episodes[0] >= 0

    @property
    def first_live(self) -> int:
        """The number of live agents that are the first in their slots."""
        return sum(self.episodes[slot] == 0 for slot in self._slots.values())

    def take(self, decision: Decision) -> SlotRows:
        """
        Return the rows of a submit of this class by slot, and assign slots to its new agents.

        Raises GuestError if there are more agents than slots.
        """
        agents = decision.agents.tobytes()
        is_steady = not (  # `any` of an array takes thrice as long
            _SET in decision.started.tobytes()
            or _SET in decision.terminated.tobytes()
            or _SET in decision.truncated.tobytes()
        )
        if is_steady and self._steady is not None and self._steady[0] == agents:
            return self._steady[1]
        rows = self._assigned(decision)
        self._steady = (agents, rows) if is_steady else None
        return rows

    def _assigned(self, decision: Decision) -> SlotRows:
        count = len(self.agents)
        numbers = decision.agents.tolist()
        ends = np.where(decision.terminated, TERMINATED, decision.truncated * TRUNCATED).tolist()
        rows = SlotRows([ABSENT] * count, [RUNS_ON] * count, [ABSENT] * len(numbers))
        new = []
        for row, (number, end) in enumerate(zip(numbers, ends, strict=True)):
            slot = self._slots.get(number)
            if slot is None:
                new.append(row)
            else:
                self._show(rows, row, slot, number, end)
        self._admit(rows, new, numbers, ends)
        for row, end in enumerate(ends):
            if end == RUNS_ON:
                rows.deciding.append(rows.slots[row])
        starts = decision.started[~decision.ended]
        rows.started = starts.astype(int).tolist()
        return rows

    def _show(self, rows: SlotRows, row: int, slot: int, number: int, end: int) -> None:
        rows.shown[slot], rows.ends[slot], rows.slots[row] = row, end, slot
        if end != RUNS_ON:
            self._slots.pop(number, None)
            self.has_ended = True

    def _admit(self, rows: SlotRows, new: list[int], numbers: list[int], ends: list[int]) -> None:
        """Give new agents the lowest free slots. Raises GuestError if there are too few."""
        taken = set(self._slots.values())
        free = [slot for slot in range(len(self.agents)) if slot not in taken]
        if len(new) > len(free):
            raise GuestError(
                f"{self.actor_class.behavior.name} has {len(taken) + len(new)} agents at once,"
                f" where a trial has {len(self.agents)} slots of {self.actor_class.name}: declare"
                ' "slots" in the spec of the behavior'
            )
        for row, slot in zip(new, free, strict=False):
            if rows.shown[slot] != ABSENT:
                rows.finals[slot] = rows.shown[slot], rows.ends[slot]
            self._slots[numbers[row]] = slot
            self.agents[slot] = numbers[row]
            self.episodes[slot] += 1
            self._show(rows, row, slot, numbers[row], ends[row])


class ObservationWriter:
    """
    Writes the observations of the slots of one class, as serialized Observation messages.

    The last values of each slot are kept, and sent while the slot's agent is absent.
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
        """Return the observation of each slot for a submit of another class."""
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
    """Return which choices agents may take, bool, [n, choices of all branches]; None if all."""
    masks = decision.masks
    if not masks or not any(mask.any() for mask in masks):
        return None
    return ~np.concatenate(masks, axis=1)


class RewardWriter:
    """
    Writes the rewards of one actor class, sent by the environment called `sender`.

    Each source of a reward is a serialized RewardSource. `actors` has, for each slot, the index of
    its actor in the trial.
    """

    def __init__(self, actors: Sequence[int], sender: str) -> None:
        self._actors = actors
        name = sender.encode()
        self._head = _SENDER + varint(len(name)) + name if name else b""

    def write(self, rows: SlotRows, decision: Decision) -> HostedRewards:
        """
        Return the rewards of a submit, with the metadata of their rows.

        The reward of an episode's first row is sent only if it is not 0 or has metadata, and if no
        other agent ended in the same slot in this submit, since the slot's reward is then that
        agent's. Rows without a submit, for example of an agent whose guest ended, have no reward.
        """
        items = _by_row(decision.metadata) if len(decision.metadata.rows) else {}
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
    packed = AnyMessage()
    packed.Pack(items)
    content = packed.SerializeToString()
    return _USER_DATA + varint(len(content)) + content


def _by_row(metadata: Iterable[Metadata]) -> dict[int, MetadataMessage]:
    messages: dict[int, MetadataMessage] = {}
    for item in metadata:
        found = messages.setdefault(item.row, MetadataMessage())
        found.items.add(name=item.name, value=item.value)
    return messages


@dataclass(slots=True)
class Offer:
    """
    Actions that policies propose, in place of missing players, for the agents of one submit.

    applied: float32, [m, num_actions], valid actions in push order. contents: the same as messages.
    stand_ins: a stand-in's action, or none, for each actor of the trial.
    """

    applied: Floats
    contents: list[bytes]
    stand_ins: Sequence[StandIn]


@dataclass(slots=True)
class _Steady:
    """Default actions for the agents of `rows`, which are the same from submit to submit."""

    rows: SlotRows
    offer: Offer


class ClassSide:
    """
    The agents of one class: their slots, their observations, and the actions offered to them.

    Args:
        actor_class: The class.
        actors: The index in the trial of each slot's actor.
        count: The number of actors of the trial.
        key: The key of the first slot; the keys of the other slots follow.
        environment: The name of the environment, as the sender of rewards.

    Attributes:
        rewards: The rewards of the last submit.
        ended: The actors whose episodes ended with it, in a game that people are told of.
        is_waiting: Whether agents of the last submit wait for an action.

    """

    def __init__(
        self,
        actor_class: GuestClass,
        actors: Sequence[int],
        count: int,
        key: int,
        environment: str,
    ) -> None:
        self.actor_class: GuestClass = actor_class
        self.slots: ClassSlots = ClassSlots(actor_class)
        self.rewards = HostedRewards((), (), ())
        self.ended: list[int] = []
        self.is_waiting = False
        self._writer = ObservationWriter(self.slots)
        self._reward_writer = RewardWriter(actors, environment)
        self._rule = ActionRule(actor_class.behavior.spec.actions)
        self._actors = actors
        self._count = count
        self._key = np.uint64(key)
        self._steady: _Steady | None = None
        self._decision: Decision | None = None
        self._rows: SlotRows | None = None
        self._allowed: Marks | None = None
        self._offer: Offer | None = None

    def take(self, decision: Decision) -> list[bytes]:
        """
        Apply a submit of the class; return the observation of each slot.

        Raises GuestError for a submit with other numbers of features or actions than the class.
        """
        behavior, known = decision.behavior, self.actor_class.behavior
        if behavior is not known and (
            (behavior.num_features, behavior.num_actions) != (known.num_features, known.num_actions)
        ):
            raise GuestError(
                f"{behavior.name!r} has {behavior.num_features} features and"
                f" {behavior.num_actions} actions, where it had {known.num_features} and"
                f" {known.num_actions} when its slots were counted"
            )
        rows = self.slots.take(decision)
        allowed = allowed_choices(decision)
        self._decision, self._rows, self._allowed = decision, rows, allowed
        self.rewards = self._reward_writer.write(rows, decision)
        self.is_waiting = bool(rows.deciding)
        if known.spec.game is not None:
            slots = [slot for slot, end in enumerate(rows.ends) if end != RUNS_ON]
            self.ended = [self._actors[slot] for slot in (*slots, *rows.finals)]
        return self._writer.write(rows, decision, allowed)

    def absent(self) -> list[bytes]:
        """Return the observation of each slot for a submit of another class."""
        return self._writer.absent()

    def waiting(self) -> StandInRows:
        """Return the rows of the agents that wait for an action."""
        decision, rows = self._decision, self._rows
        assert decision is not None
        assert rows is not None
        deciding = self._deciding(rows)
        return StandInRows(
            self.actor_class.name,
            decision.observations[deciding],
            None if self._allowed is None else self._allowed[deciding],
            np.array(rows.deciding, np.uint64) + self._key,
            decision.agents[deciding].astype(np.uint64),
            _STATES[rows.started],
        )

    def offer(self, given: StandInActions | None) -> Sequence[StandIn]:
        """
        Store proposed actions for the agents that wait, and return one for each actor of the trial.

        None proposes the default actions.
        """
        rows = self._rows
        assert rows is not None
        if given is None and self._allowed is None:
            if self._steady is None or self._steady.rows is not rows:
                applied = self._rule.defaults(len(rows.deciding), None)
                self._steady = _Steady(rows, self._offered(rows, applied, None))
            self._offer = self._steady.offer
        else:
            deciding = self._deciding(rows)
            allowed = None if self._allowed is None else self._allowed[deciding]
            if given is None:
                applied = self._rule.defaults(len(rows.deciding), allowed)
            else:
                applied = self._rule.settled(given.actions, allowed)
            self._offer = self._offered(rows, applied, given)
        return self._offer.stand_ins

    def offered(self) -> Floats:
        """Return the proposed actions, float32, [m, num_actions], in push order."""
        assert self._offer is not None
        return self._offer.applied

    def applied(self, acted: Sequence[Acted]) -> Floats:
        """Return the actions that were applied, float32, [m, num_actions], in push order."""
        offer, rows, actors = self._offer, self._rows, self._actors
        assert offer is not None
        assert rows is not None
        contents = [acted[actors[slot]].content for slot in rows.deciding]
        if contents == offer.contents:
            return offer.applied
        actions = offer.applied.copy()
        masks = None if self._allowed is None else self._allowed[self._deciding(rows)]
        for row, content in enumerate(contents):
            if content != offer.contents[row]:
                actions[row] = self._rule.applied(content, None if masks is None else masks[row])
        return actions

    def _offered(self, rows: SlotRows, applied: Floats, given: StandInActions | None) -> Offer:
        contents = self._rule.contents(applied)
        origins = [""] * len(contents) if given is None else given.origins
        stand_ins = [StandIn(b"")] * self._count
        for slot, content, origin in zip(rows.deciding, contents, origins, strict=True):
            stand_ins[self._actors[slot]] = StandIn(content, origin)
        return Offer(applied, contents, stand_ins)

    def _deciding(self, rows: SlotRows) -> Any:
        """Return the rows of the submit that wait for an action: a slice, or bool, [n]."""
        assert self._decision is not None
        if len(rows.deciding) == len(rows.slots):
            return slice(None)
        return ~self._decision.ended


def answer_of(receiver: str, content: bytes) -> EnvRunTrialOutput:
    """Return the guest's answer to a message of `receiver`."""
    payload = AnyMessage()
    payload.Pack(SideChannel(content=content))
    message = Message(tick_id=AUTO, receiver_name=receiver, payload=payload)
    return EnvRunTrialOutput(state=_NORMAL, message=message)
