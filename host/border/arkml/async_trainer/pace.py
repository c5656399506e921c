"""The pace of actors: items that they may make while the trainer makes its updates."""

from __future__ import annotations


class AdmittedItems:
    """
    Divides the items that are admitted in all among actors.

    What is free goes to the actors that have the fewest left, so that all have as many left as
    others where that can be: a fast actor uses what a slow one does not.
    """

    def __init__(self, actors: int) -> None:
        self._incarnations = [0] * actors
        self._admitted = [0] * actors
        self._received = [0] * actors
        self._total = 0

    def take(self, actor: int, incarnation: int, items: int) -> None:
        """Count items that were received from an actor."""
        self._total += items
        if incarnation == self._incarnations[actor]:
            self._received[actor] += items

    def restart(self, actor: int, incarnation: int) -> int:
        """
        Begin a new incarnation and return the items that it may make.

        It has those that the one before had left; items that were lost are made again.
        """
        left = self._admitted[actor] - self._received[actor]
        self._incarnations[actor] = incarnation
        self._admitted[actor], self._received[actor] = left, 0
        return left

    def admit(self, items: int) -> list[tuple[int, int]]:
        """
        Admit `items` in all, fewer than before change nothing.

        Return the actors that may make more now, each with the items of its incarnation in all.
        """
        left = [a - r for a, r in zip(self._admitted, self._received, strict=True)]
        free = items - self._total - sum(left)
        if free < 1:
            return []
        level = _level(left, free)
        changed = []
        for actor, items_left in enumerate(left):
            if level > items_left:
                self._admitted[actor] += level - items_left
                changed.append((actor, self._admitted[actor]))
        return changed


def _level(amounts: list[int], free: int) -> int:
    """Return the level to which `free` can fill all lower ones of `amounts`, rounded down."""
    lowest = sorted(amounts)
    used = 0
    for count, amount in enumerate(lowest, 1):
        used += amount
        level = (used + free) // count
        if count == len(lowest) or level <= lowest[count]:
            return level
    raise AssertionError(amounts)
