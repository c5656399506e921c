"""What answers a submit."""

from __future__ import annotations

from typing import Protocol

from arkml.batches import Batch


class Policy(Protocol):
    """Acts for the agents of any number of sessions. Used by one thread at a time."""

    @property
    def num_features(self) -> int: ...

    @property
    def num_actions(self) -> int: ...

    def act(self, batch: Batch) -> None:
        """
        Fill `batch.actions`, and `batch.values` if the policy has values.

        Raises Unavailable when it cannot, and then no agent has moved on.
        """

    def forget(self, key: int) -> None:
        """Drop what is kept for the agents of session `key`, which is closed."""
