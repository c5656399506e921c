"""The protocol of a policy, which answers submits."""

from __future__ import annotations

from typing import Protocol

from arkml.batches import Batch


class Policy(Protocol):
    """
    An object that acts for the agents of sessions of one shape.

    Any object with these four members is one. A policy that is given to a `Host` answers all its
    guests, on the thread that calls the guest; where several threads call guests of one host, they
    call the policy at once. Guests of a fleet, and an environment's, are answered one batch at a
    time.
    """

    @property
    def num_features(self) -> int:
        """The number of features of an observation. Sessions of another number are refused."""

    @property
    def num_actions(self) -> int:
        """The number of actions of an agent. Sessions of another number are refused."""

    def act(self, batch: Batch) -> None:
        """
        Fill `batch.actions`, and `batch.values` where the policy has values.

        Everything in the batch is a view that lives until this method returns: copy what is to be
        kept. A batch has at least one row and may hold the rows of many sessions, which `keys`
        tells apart; an agent is known by its key and its id. Where the policy raises for the rows
        of a fleet it is called again for the rows of each guest.

        Raises Unavailable if there is no answer now: the guest gets that code and no agent has
        moved on. Any other exception fails the guest, as PolicyFailed.
        """

    def forget(self, key: int) -> None:
        """
        Drop what is kept for the agents of session `key`, which is closed.

        Called once for each session, also where its guest failed or was dropped, and then possibly
        in a finalizer on another thread. What it raises is logged.
        """
