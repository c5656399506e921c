"""The protocol of a policy, which answers submits."""

from __future__ import annotations

from typing import Protocol

from arkml.batches import Batch


class Policy(Protocol):
    """Acts for the agents of any number of sessions. One thread at a time uses it."""

    @property
    def num_features(self) -> int:
        """Features of one row."""

    @property
    def num_actions(self) -> int:
        """Actions of one row."""

    def act(self, batch: Batch) -> None:
        """
        Fill `batch.actions`, float32, [n, num_actions], and `batch.values`, float32, [n], if any.

        Raises Unavailable if the policy cannot act, and then no agent has advanced.
        """

    def forget(self, key: int) -> None:
        """Drop the state of the agents of session `key`, which is closed."""
