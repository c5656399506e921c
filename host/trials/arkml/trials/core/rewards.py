"""Rewards on their way: collected from all senders, one reward an actor and tick."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import TypeAlias

from arkml.trials.core.hosting import HostedRewards
from arkml.trials.wire.common_pb2 import Reward, RewardSource

MOST_BYTES = 64 << 20
"""Bytes of the rewards that wait in one tick; what has several receivers counts for each."""

_SOURCE_BYTES = 512
"""Bytes of a source, and of a reward, beside its content, by estimate."""


def aggregate(tick: int, receiver: str, sources: Iterable[RewardSource]) -> Reward:
    """
    Return one reward of all sources.

    Its value is the mean of all values weighted by their confidence, sum(value * confidence) /
    sum(confidence), over those with a confidence above 0; it is 0 if there are none.
    """
    listed = list(sources)
    weight = sum(source.confidence for source in listed if source.confidence > 0)
    total = sum(source.value * source.confidence for source in listed if source.confidence > 0)
    value = total / weight if weight > 0 else 0.0
    return Reward(tick_id=tick, receiver_name=receiver, value=value, sources=listed)


_Given: TypeAlias = tuple[int, Sequence[RewardSource]]
"""The index of an actor, and sources for it."""


class PendingRewards:
    """The sources of rewards of one tick, until the next observations of their receivers."""

    def __init__(self) -> None:
        self._parts: list[HostedRewards | _Given] = []
        self._taken: Sequence[HostedRewards | _Given] = ()
        self._bytes = 0  # of rewards that were sent in messages

    def add(self, actors: Sequence[int], sources: Sequence[RewardSource], size: int) -> bool:
        """
        Keep sources of `size` bytes for actors, by their indices.

        Returns False, and keeps none, if too much waits in this tick.
        """
        held = self._bytes + len(actors) * (size + _SOURCE_BYTES * (1 + len(sources)))
        if held > MOST_BYTES:
            return False
        self._bytes = held
        self._parts += [(actor, sources) for actor in actors]
        return True

    def add_hosted(self, rewards: HostedRewards) -> None:
        """Keep rewards by a hosted environment, whose sources are parsed only if asked for."""
        self._parts.append(rewards)

    def take(self) -> None:
        """Begin another tick: what was kept so far is what `taken` returns."""
        self._taken, self._parts, self._bytes = self._parts, [], 0

    def taken(self, actors: Container[int]) -> dict[int, list[RewardSource]]:
        """Return the sources of the tick for those of `actors` that have any, by their index."""
        found: dict[int, list[RewardSource]] = {}
        for part in self._taken:
            if isinstance(part, HostedRewards):
                for actor, source in zip(part.actors, part.sources, strict=True):
                    if actor in actors:
                        found.setdefault(actor, []).append(RewardSource.FromString(source))
            elif part[0] in actors:
                found.setdefault(part[0], []).extend(part[1])
        return found
