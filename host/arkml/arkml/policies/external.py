"""The policy of a guest whose actions come from outside, in the steps of an environment."""

from __future__ import annotations

from collections.abc import Sequence

from arkml.batches import Batch
from arkml.errors import Unavailable
from arkml.policies.choice_masks import ChoiceMasks
from arkml.policies.workspace import PolicyWorkspace


class ExternalPolicy:
    """
    Stands for a learner outside of the guest, whose actions come with the next step.

    `name` is the behavior, `branches` are the choices of its last actions. A guest that submits
    rows stays suspended until that step, with every version of the API. In a call that no
    environment makes, a submit is refused, because it cannot wait. If not `is_stepped`, submits are
    answered at once, with zeros and the lowest allowed choices.
    """

    def __init__(
        self,
        name: str,
        num_features: int,
        num_actions: int,
        *,
        is_stepped: bool = True,
        branches: Sequence[int] = (),
    ) -> None:
        self.name = name
        self.is_stepped = is_stepped
        self.num_features = num_features
        self.num_actions = num_actions
        self.masks: ChoiceMasks | None = None
        if branches and not is_stepped:
            self.masks = ChoiceMasks(branches, PolicyWorkspace())

    def act(self, batch: Batch) -> None:
        """Raise Unavailable, or answer with zeros if the policy is not stepped."""
        if not self.is_stepped:
            batch.actions[...] = 0
            batch.values[...] = 0
            if self.masks is not None:
                self.masks.hold_idle(batch)
            return
        raise Unavailable(
            f"behavior {self.name!r} is stepped by an environment, but this call"
            f" ({len(batch)} rows) was not made by it"
        )

    def forget(self, key: int) -> None:
        """Do nothing, since no state of agents is kept."""
        del key
