"""Rewards and messages of a trial, from their senders to their receivers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from arkml.trials.core.hosting import HostedRewards
from arkml.trials.core.outgoing import Outgoing
from arkml.trials.core.outputs import EntryKind
from arkml.trials.core.places import ActorPlace, EnvironmentPlace
from arkml.trials.core.receivers import Receivers
from arkml.trials.core.rewards import PendingRewards, aggregate
from arkml.trials.wire.actor_pb2 import ActorRunTrialInput
from arkml.trials.wire.common_pb2 import CommunicationState, Message, Reward, RewardSource
from arkml.trials.wire.environment_pb2 import EnvRunTrialInput

AUTO: Final = -1
"""Tick number that stands for the present tick."""

NORMAL = CommunicationState.NORMAL


class Mail:
    """
    Delivers messages at once, and rewards before the next observation of their receivers.

    What is for a tick to come is refused, and rewards of ticks before the present one are for the
    log alone: their receivers have had the reward of that tick.
    """

    def __init__(
        self,
        actors: Sequence[ActorPlace],
        environment: EnvironmentPlace,
        buffered: int,
        outgoing: Outgoing,
    ) -> None:
        self._actors = actors
        self._environment = environment
        self._buffered = buffered
        self._outgoing = outgoing
        self._receivers = Receivers([actor.params for actor in actors])
        self._rewards = PendingRewards()

    def take_reward(self, sender: str, reward: Reward) -> None:
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
            if not self._rewards.add(receivers, sources, reward.ByteSize()):
                outgoing.complain(f"a reward of {sender!r} was dropped: too much waits in the tick")
        elif tick < outgoing.tick - self._buffered:
            outgoing.complain(f"a reward of {sender!r} for tick {tick} is out of sync")

    def take_hosted(self, rewards: HostedRewards) -> None:
        """Add rewards of a hosted environment for the present tick."""
        if not math.isfinite(sum(rewards.values)):
            rewards = self._finite(rewards)
        outgoing = self._outgoing
        if outgoing.is_logged:
            names = [self._actors[index].name for index in rewards.actors]
            outgoing.log_rewards(names, self._environment.name, rewards.sources)
        self._rewards.add_hosted(rewards)

    def take_message(self, sender: str, message: Message) -> None:
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
        self._rewards.take()
        if outgoing.open_actors:
            for index, sources in self._rewards.taken(outgoing.open_actors).items():
                reward = aggregate(outgoing.tick, self._actors[index].name, sources)
                outgoing.to_actor(index, ActorRunTrialInput(state=NORMAL, reward=reward))

    def delivered(self) -> list[float]:
        """Return the last reward of each actor, 0 if it had none."""
        taken = self._rewards.taken(range(len(self._actors)))
        return [aggregate(0, "", taken.get(actor.index, ())).value for actor in self._actors]

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


def _sent_by(sender: str, source: RewardSource) -> RewardSource:
    if source.sender_name == sender:
        return source  # messages are not changed
    copy = RewardSource()
    copy.CopyFrom(source)
    copy.sender_name = sender
    return copy
