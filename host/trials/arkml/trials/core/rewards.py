"""Pending rewards, and their aggregation to one reward an actor and tick."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import TypeAlias

from arkml.trials.core.hosting import HostedRewards
from arkml.trials.wire.common_pb2 import Reward, RewardSource

MOST_BYTES = 64 << 20
"""Maximum size of the pending rewards in bytes; one with several receivers counts for each."""

_SOURCE_BYTES = 512
"""Estimated overhead of a source, and of a reward, in bytes."""


def aggregate(tick: int, receiver: str, sources: Iterable[RewardSource]) -> Reward:
    """
    Return one reward from all sources, with their mean weighted by confidence.

    The value is sum(value * confidence) / sum(confidence) over all sources with a confidence above
    0; for example 1 at confidence 1 and 4 at confidence 0.5 give 2. It is 0 without such sources.

    Args:
        tick: Tick of the reward.
        receiver: Name of the actor that gets it.
        sources: Sources of the reward.

    Its value is the mean of all values weighted by their confidence, sum(value * confidence) /
    sum(confidence), over those with a confidence above 0; it is 0 if there are none.

    """
    listed = list(sources)
    weight = sum(source.confidence for source in listed if source.confidence > 0)
    total = sum(source.value * source.confidence for source in listed if source.confidence > 0)
    value = total / weight if weight > 0 else 0.0
    return Reward(tick_id=tick, receiver_name=receiver, value=value, sources=listed)


_Given: TypeAlias = tuple[int, Sequence[RewardSource]]
"""Index of an actor, and reward sources for it."""


class PendingRewards:
    """Reward sources of one tick, kept until the next observations."""

    def __init__(self) -> None:
        self._parts: list[HostedRewards | _Given] = []
        self._taken: Sequence[HostedRewards | _Given] = ()
        self._bytes = 0  # of rewards that were sent in messages

    def add(self, actors: Sequence[int], sources: Sequence[RewardSource], size: int) -> bool:
        """
        Keep sources of `size` bytes for actors, given by index.

        Returns False, without keeping them, if too many bytes are pending in this tick.
        """
        held = self._bytes + len(actors) * (size + _SOURCE_BYTES * (1 + len(sources)))
        if held > MOST_BYTES:
            return False
        self._bytes = held
        self._parts += [(actor, sources) for actor in actors]
        return True

    def add_hosted(self, rewards: HostedRewards) -> None:
        """Keep rewards of a hosted environment; their sources are parsed only on demand."""
        self._parts.append(rewards)

    def take(self) -> None:
        """Begin the next tick; `taken` then returns the sources kept so far."""
        self._taken, self._parts, self._bytes = self._parts, [], 0

    def taken(self, actors: Container[int]) -> dict[int, list[RewardSource]]:
        """Return the sources for each of `actors` that has any, by index."""
        found: dict[int, list[RewardSource]] = {}
        for part in self._taken:
            if isinstance(part, HostedRewards):
                for actor, source in zip(part.actors, part.sources, strict=True):
                    if actor in actors:
                        found.setdefault(actor, []).append(RewardSource.FromString(source))
            elif part[0] in actors:
                found.setdefault(part[0], []).extend(part[1])
        return found
