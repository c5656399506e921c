"""The end of a trial: its final observations and their acknowledgements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from arkml.trials.core.places import ActorPlace, EnvironmentPlace
from arkml.trials.core.states import Phase

ENVIRONMENT_LEAVES: Final = 60.0
"""Seconds that an environment has for its last observations and its LAST_ACK."""

ACTOR_LEAVES: Final = 30.0
"""Seconds that actors have for their LAST_ACK."""


class TrialEnding:
    """
    Progress of a trial towards its end.

    Attributes:
        is_requested: The next complete set of actions is the last.
        is_last_due: The next observations are the final ones.
        leaving: Number of actors that have not acknowledged the final observations.

    """

    def __init__(self, actors: Sequence[ActorPlace], environment: EnvironmentPlace) -> None:
        self._actors = actors
        self._environment = environment
        self._environment_due: float | None = None
        self._actors_due = 0.0
        self.is_requested = False
        self.is_last_due = False
        self.leaving = 0

    @property
    def has_begun(self) -> bool:
        """True once no more actions are awaited."""
        return self._environment_due is not None

    @property
    def is_complete(self) -> bool:
        """True once the environment and all actors have acknowledged the end."""
        is_awaited = self.leaving or self.is_last_due
        return not is_awaited and self._environment.phase is Phase.OVER

    @property
    def due(self) -> float | None:
        """Time at which an acknowledgement is late, None if none is awaited."""
        times = [self._actors_due] if self.leaving else []
        if self._environment_due is not None and self._environment.is_present:
            times.append(self._environment_due)
        return min(times, default=None)

    def await_last(self, now: float) -> None:
        """Wait for the final observations."""
        self.is_last_due = True
        self._environment_due = now + ENVIRONMENT_LEAVES

    def await_actors(self, leaving: int, now: float) -> None:
        """Wait until `leaving` actors have acknowledged the final observations."""
        self.is_last_due = False
        self.leaving = leaving
        self._actors_due = now + ACTOR_LEAVES

    def late(self, now: float) -> list[str]:
        """Return the names of actors and environment whose acknowledgement is late."""
        names = []
        if self.leaving and self._actors_due <= now:
            names = [actor.name for actor in self._actors if actor.phase is Phase.LEAVING]
        due = self._environment_due
        if due is not None and due <= now and self._environment.is_present:
            names.append(self._environment.name)
        return names
