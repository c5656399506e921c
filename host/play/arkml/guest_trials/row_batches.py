"""Joining of rows from many trials by actor class, so that a policy runs once for all of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from arkml.guest_trials.guest_trials_options import StandInActions, StandInPolicies, StandInRows


def act_together(
    policies: StandInPolicies, rows: Sequence[StandInRows]
) -> list[StandInActions | None]:
    """
    Return actions for each of `rows`, several of which may be of the same class.

    Each policy is called once, with one StandInRows for its class. Passes on the errors of
    policies.
    """
    by_class: dict[str, list[int]] = {}
    for place, one in enumerate(rows):
        by_class.setdefault(one.actor_class, []).append(place)
    acted: list[StandInActions | None] = [None] * len(rows)
    together = [_joined([rows[place] for place in places]) for places in by_class.values()]
    answers = policies.act(together)
    for places, answer in zip(by_class.values(), answers, strict=True):
        if answer is None:
            continue
        start = 0
        for place in places:
            stop = start + len(rows[place].keys)
            acted[place] = StandInActions(answer.actions[start:stop], answer.origins[start:stop])
            start = stop
    return acted


def _joined(rows: Sequence[StandInRows]) -> StandInRows:
    """Return the rows of one class as one; where none is masked, `allowed` is None."""
    if len(rows) == 1:
        return rows[0]
    masked = next((one.allowed for one in rows if one.allowed is not None), None)
    allowed = None
    if masked is not None:
        choices = masked.shape[1]
        allowed = np.concatenate(
            [
                np.ones((len(one.keys), choices), bool) if one.allowed is None else one.allowed
                for one in rows
            ]
        )
    return StandInRows(
        rows[0].actor_class,
        np.concatenate([one.observations for one in rows]),
        allowed,
        np.concatenate([one.keys for one in rows]),
        np.concatenate([one.agents for one in rows]),
        np.concatenate([one.states for one in rows]),
    )
