"""Observations, rewards and messages of a trial, from their senders to their receivers."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence
from typing import Final, TypeAlias

from arkml.trials.core.actors import ActorPlace, Breach, TrialPlace
from arkml.trials.core.hosting import HostedRewards
from arkml.trials.core.outputs import EntryKind, Outgoing
from arkml.trials.core.states import Move
from arkml.trials.wire.actor_pb2 import ActorRunTrialInput, ActorRunTrialOutput
from arkml.trials.wire.common_pb2 import (
    ActorParams,
    CommunicationState,
    Message,
    Reward,
    RewardSource,
)
from arkml.trials.wire.environment_pb2 import EnvRunTrialInput, EnvRunTrialOutput, ObservationSet

AUTO: Final = -1
"""Tick number that stands for the present tick."""

MOST_BYTES = 64 << 20
"""Maximum size of the pending rewards in bytes; one with several receivers counts for each."""

NORMAL = CommunicationState.NORMAL

_SOURCE_BYTES = 512
"""Estimated overhead of a source, and of a reward, in bytes."""

_Given: TypeAlias = tuple[Sequence[int], Sequence[RewardSource]]
"""Indices of actors, and reward sources for each of them."""


def aggregate(tick: int, receiver: str, sources: Iterable[RewardSource]) -> Reward:
    """
    Return one reward from all sources, with their mean weighted by confidence.

    The value is sum(value * confidence) / sum(confidence) over all sources with a confidence above
    0; for example 1 at confidence 1 and 4 at confidence 0.5 give 2. It is 0 without such sources.

    Args:
        tick: Tick of the reward.
        receiver: Name of the actor that gets it.
        sources: Sources of the reward.

    """
    reward = Reward(tick_id=tick, receiver_name=receiver, sources=sources)
    weight = total = 0.0
    for source in reward.sources:
        if source.confidence > 0:
            weight += source.confidence
            total += source.value * source.confidence
    reward.value = total / weight if weight > 0 else 0.0
    return reward


class Receivers:
    """
    Resolves the receiver names of rewards, messages and observations to actors.

    `"*"` and `"*.*"` mean all actors, `"class.*"` all actors of a class, `"class.name"` and
    `"name"` one actor; for example `"pilot.*"` means all pilots. The environment is never included.
    """

    def __init__(self, actors: Sequence[ActorParams]) -> None:
        everyone = tuple(range(len(actors)))
        self._indices: dict[str, tuple[int, ...]] = {"*": everyone, "*.*": everyone}
        for index, actor in enumerate(actors):
            of_class = f"{actor.actor_class}.*"
            self._indices[of_class] = (*self._indices.get(of_class, ()), index)
        for index, actor in enumerate(actors):
            self._indices[f"{actor.actor_class}.{actor.name}"] = (index,)
        for index, actor in enumerate(actors):  # a plain name wins over everything else
            self._indices[actor.name] = (index,)

    def find(self, name: str) -> tuple[int, ...]:
        """Return the indices of the actors that a name means, in trial order; none if unknown."""
        return self._indices.get(name, ())


class Mail:
    """
    Delivers messages at once, and rewards before the next observation of their receivers.

    Rewards for a later tick are refused. Rewards for an earlier tick are only logged, because their
    receivers have already got the reward of that tick.

    Args:
        actors: The actors of the trial.
        environment: The environment of the trial.
        buffered: Number of ticks by which a reward may be late without a complaint.
        outgoing: Collects the outputs of the trial.

    """

    def __init__(
        self,
        actors: Sequence[ActorPlace],
        environment: TrialPlace,
        buffered: int,
        outgoing: Outgoing,
    ) -> None:
        self._actors = actors
        self._environment = environment
        self._buffered = buffered
        self._outgoing = outgoing
        self._receivers = Receivers([actor.params for actor in actors])
        self._pending: list[HostedRewards | _Given] = []  # for the present tick
        self._pending_bytes = 0  # of those that were sent in messages
        self._delivered: Sequence[HostedRewards | _Given] = ()

    def take(self, sender: str, message: ActorRunTrialOutput | EnvRunTrialOutput) -> None:
        """Handle a message of the participant `sender`: add a reward, or deliver it to others."""
        if message.WhichOneof("data") == "reward":
            self._take_reward(sender, message.reward)
        else:
            self._take_message(sender, message.message)

    def take_hosted(self, rewards: HostedRewards) -> None:
        """Add rewards of a hosted environment for the present tick."""
        if not math.isfinite(sum(rewards.values)):
            rewards = self._finite(rewards)
        outgoing = self._outgoing
        if outgoing.is_logged:
            names = [self._actors[index].name for index in rewards.actors]
            outgoing.log_rewards(names, self._environment.name, rewards.sources)
        self._pending.append(rewards)

    def _take_reward(self, sender: str, reward: Reward) -> None:
        """Add a reward. `sender` overwrites the sender of its sources."""
        tick = self._tick_of(reward.tick_id, "reward", sender)
        if tick is None:
            return
        name, outgoing = reward.receiver_name, self._outgoing
        receivers = self._receivers.find(name)
        if not receivers:
            outgoing.complain(f"a reward of {sender!r} is for {name!r}, which is not an actor")
            return
        for source in reward.sources:
            if not (math.isfinite(source.value) and math.isfinite(source.confidence)):
                self._refuse(sender, source.value, source.confidence)
                return
        sources = [_sent_by(sender, source) for source in reward.sources]
        if outgoing.is_logged:
            for source in sources:
                content = source.SerializeToString()
                outgoing.log(EntryKind.REWARD, tick=tick, name=name, sender=sender, content=content)
        if tick == outgoing.tick:
            size = reward.ByteSize() + _SOURCE_BYTES * (1 + len(sources))
            pending = self._pending_bytes + len(receivers) * size
            if pending > MOST_BYTES:
                outgoing.complain(f"a reward of {sender!r} was dropped: too much waits in the tick")
                return
            self._pending_bytes = pending
            self._pending.append((receivers, sources))
        elif tick < outgoing.tick - self._buffered:
            outgoing.complain(f"a reward of {sender!r} for tick {tick} is out of sync")

    def _take_message(self, sender: str, message: Message) -> None:
        """Deliver a message to its receivers."""
        tick = self._tick_of(message.tick_id, "message", sender)
        if tick is None:
            return
        name, payload, outgoing = message.receiver_name, message.payload, self._outgoing
        if not payload.type_url:  # the published JavaScript SDK ends its stream at one
            outgoing.complain(f"a message of {sender!r} was refused: its payload has no type_url")
            return
        if outgoing.is_logged:
            content = payload.SerializeToString()
            outgoing.log(EntryKind.MESSAGE, tick=tick, name=name, sender=sender, content=content)
        sent = Message(tick_id=tick, sender_name=sender, receiver_name=name, payload=payload)
        if name == self._environment.name:
            outgoing.to_environment(EnvRunTrialInput(state=NORMAL, message=sent))
            return
        receivers = self._receivers.find(name)
        if not receivers:
            outgoing.complain(f"a message of {sender!r} is for {name!r}, which is not in the trial")
        shared = ActorRunTrialInput(state=NORMAL, message=sent)
        for index in receivers:
            outgoing.to_actor(index, shared)

    def deliver_rewards(self) -> None:
        """Send the rewards of the present tick to all connected actors."""
        outgoing = self._outgoing
        self._delivered, self._pending, self._pending_bytes = self._pending, [], 0
        if outgoing.open_actors:
            for index, sources in self._sources(outgoing.open_actors).items():
                reward = aggregate(outgoing.tick, self._actors[index].name, sources)
                outgoing.to_actor(index, ActorRunTrialInput(state=NORMAL, reward=reward))

    def delivered(self) -> list[float]:
        """Return the last reward of each actor, 0 if it had none."""
        sources = self._sources(range(len(self._actors)))
        return [aggregate(0, "", sources.get(actor.index, ())).value for actor in self._actors]

    def _sources(self, actors: Container[int]) -> dict[int, list[RewardSource]]:
        """Return the sources of the last rewards of each of `actors` that had any, by index."""
        found: dict[int, list[RewardSource]] = {}
        for part in self._delivered:
            if isinstance(part, HostedRewards):
                for actor, source in zip(part.actors, part.sources, strict=True):
                    if actor in actors:  # the others are never parsed
                        found.setdefault(actor, []).append(RewardSource.FromString(source))
            else:
                for actor in part[0]:
                    if actor in actors:
                        found.setdefault(actor, []).extend(part[1])
        return found

    def _finite(self, rewards: HostedRewards) -> HostedRewards:
        """Return the rewards without values such as NaN, which are refused."""
        kept = []
        for row in zip(*rewards, strict=True):
            if math.isfinite(row[1]):
                kept.append(row)
            else:
                self._refuse(self._environment.name, row[1], 1.0)
        return HostedRewards(*zip(*kept, strict=True)) if kept else HostedRewards((), (), ())

    def _refuse(self, sender: str, value: float, confidence: float) -> None:
        pair = f"value {value:g} with confidence {confidence:g}"
        self._outgoing.complain(f"a reward of {sender!r} was refused: its {pair} is not finite")

    def _tick_of(self, tick: int, what: str, sender: str) -> int | None:
        """Return the tick that a message names, None if it has not begun."""
        present = self._outgoing.tick
        if tick > present or tick < AUTO:
            why = "it is in the future" if tick > present else "there is no such tick"
            self._outgoing.complain(f"a {what} of {sender!r} for tick {tick} was refused: {why}")
            return None
        return present if tick == AUTO else tick


class PresentObservations:
    """The latest observations of the environment for all actors, which are never modified."""

    def __init__(self, actors: Sequence[ActorPlace], outgoing: Outgoing) -> None:
        self._actors = actors
        self._outgoing = outgoing
        self._observed = ObservationSet()
        self._timestamp = 0
        self._messages: dict[int, ActorRunTrialInput] = {}
        self._next = 0  # tick of the next observations
        self.has_begun = False

    def check(self, observed: ObservationSet) -> None:
        """Raise Breach unless these observations are for the next tick, with one for each actor."""
        indices, count = observed.actors_map, len(observed.observations)
        if len(indices) != len(self._actors):
            raise Breach(f"it sent observations for {len(indices)} of {len(self._actors)} actors")
        if indices and not (min(indices) >= 0 and max(indices) < count):
            raise Breach(f"its actors_map names an observation that is not one of its {count}")
        if observed.tick_id not in (AUTO, self._next):
            tick = observed.tick_id
            raise Breach(f"it sent observations of tick {tick} instead of {self._next}")

    def take(self, observed: ObservationSet) -> None:
        """Begin a tick with its observations, which `check` has accepted."""
        self._outgoing.tick = self._next
        self._next += 1
        self.has_begun = True
        self._observed = observed
        self._timestamp = observed.timestamp or self._outgoing.wall()
        self._messages.clear()

    def latest(self) -> ObservationSet | None:
        """Return a copy of the observations, with their tick and time; None before the first."""
        if not self.has_begun:
            return None
        copy = ObservationSet()
        copy.CopyFrom(self._observed)
        copy.tick_id, copy.timestamp = self._outgoing.tick, self._timestamp
        return copy

    def serialized(self) -> bytes:
        """Return the observations as bytes for the log, with their tick and time."""
        observed = self._observed
        if observed.timestamp and observed.tick_id == self._outgoing.tick:
            return observed.SerializeToString()
        latest = self.latest()
        return b"" if latest is None else latest.SerializeToString()

    def message_for(self, index: int) -> ActorRunTrialInput:
        """
        Return the message with the observation of the actor at an index.

        Actors with the same observation share one message object.
        """
        one = self._observed.actors_map[index]
        message = self._messages.get(one)
        if message is None:
            message = self._messages[one] = ActorRunTrialInput(state=NORMAL)
            observation = message.observation  # filled in place, which takes half the time
            observation.tick_id, observation.timestamp = self._outgoing.tick, self._timestamp
            observation.content = self._observed.observations[one]
        return message

    def give_last(self) -> int:
        """
        Send actors their final observations; return the number of actors that must acknowledge.
        """
        last = ActorRunTrialInput(state=CommunicationState.LAST)
        leaving = 0
        for actor in self._actors:
            if actor.is_present:
                actor.take(Move.LAST)
                leaving += 1
                self._outgoing.to_actor(actor.index, last)
                self._outgoing.to_actor(actor.index, self.message_for(actor.index))
        return leaving


def _sent_by(sender: str, source: RewardSource) -> RewardSource:
    if source.sender_name == sender:
        return source  # messages are not changed
    copy = RewardSource()
    copy.CopyFrom(source)
    copy.sender_name = sender
    return copy
