"""The policy of whoever steps a guest from outside."""

from __future__ import annotations

from arkml.batches import Batch
from arkml.errors import Unavailable


class ExternalPolicy:
    """
    Stands for a learner outside: its submits are answered by the actions given to a step.

    `name` is the behavior. A guest that submits to it stays suspended until then, whichever
    version of the API it submits by. A call that no environment runs cannot wait: it is refused.
    One that is not `is_stepped` takes zeros, and nobody is asked.
    """

    def __init__(
        self, name: str, num_features: int, num_actions: int, *, is_stepped: bool = True
    ) -> None:
        self.name = name
        self.is_stepped = is_stepped
        self.num_features = num_features
        self.num_actions = num_actions

    def act(self, batch: Batch) -> None:
        if not self.is_stepped:
            batch.actions[...] = 0
            batch.values[...] = 0
            return
        raise Unavailable(
            f"behavior {self.name!r} is stepped by an environment, and it is not the environment"
            f" that made this call ({len(batch)} rows)"
        )

    def forget(self, key: int) -> None:
        """It remembers nothing."""
        del key
