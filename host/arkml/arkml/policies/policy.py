"""The protocol of a policy, which answers submits."""

from __future__ import annotations

from typing import Protocol

from arkml.batches import Batch


class Policy(Protocol):
    """
    An object that computes actions for agents, given numbers of features and actions.

    Any object with these four members is a policy. The policy of a `Host` answers all its guests,
    on the thread that calls the guest. If several threads call guests of one host, they call the
    policy at the same time. Guests of a fleet or an environment are answered one batch at a time.

    Example:
        class Damping:
            num_features, num_actions = 2, 1

            def act(self, batch):
                batch.actions[:, 0] = -0.5 * batch.features[:, 1]

            def forget(self, key):
                pass

    """

    @property
    def num_features(self) -> int:
        """The number of features of an observation. Sessions of another width are refused."""

    @property
    def num_actions(self) -> int:
        """The number of actions of an agent. Sessions of another width are refused."""

    def act(self, batch: Batch) -> None:
        """
        Fill `batch.actions`, and `batch.values` if the policy has values.

        All arrays of the batch are views that live until this method returns; copy them to keep
        them. A batch has at least one row and may hold rows of many sessions, which `keys` tells
        apart; an agent is identified by its key and its id. If the policy raises for the rows of a
        fleet, it is called again for the rows of each guest.

        Raises Unavailable if there is no answer now: the guest gets that code, and no agent has
        moved on. Any other exception fails the guest with PolicyFailed.
        """

    def forget(self, key: int) -> None:
        """
        Drop the state of all agents of session `key`, which is closed.

        Called once for each session, even if its guest failed or was dropped, and then possibly in
        a finalizer on another thread. Exceptions are logged.
        """
