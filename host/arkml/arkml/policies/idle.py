"""The policy of agents without any other policy: zeros."""

from __future__ import annotations

from arkml.batches import Batch


class Zeros:
    """A policy whose actions and values are zero."""

    def __init__(self, num_features: int, num_actions: int) -> None:
        self.num_features = num_features
        self.num_actions = num_actions

    def act(self, batch: Batch) -> None:
        batch.actions[:] = 0
        batch.values[:] = 0

    def forget(self, key: int) -> None:
        """Do nothing: no state is kept."""
