"""Receivers by name: one actor, a class of actors, or all actors."""

from __future__ import annotations

from collections.abc import Sequence

from arkml.trials.wire.common_pb2 import ActorParams


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
