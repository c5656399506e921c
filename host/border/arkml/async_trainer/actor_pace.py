"""The pace of actors: the number of items that they may make ahead of the trainer."""

from __future__ import annotations


class AdmittedItems:
    """
    Divides the total of admitted items among actors.

    Free items go to the actors with the fewest left, so that all have equally many if possible: a
    fast actor gets the items that a slow one does not use.
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
        Begin a new incarnation and return the number of items that it may make.

        It inherits the unused items of its predecessor, including items that were lost.
        """
        left = self._admitted[actor] - self._received[actor]
        self._incarnations[actor] = incarnation
        self._admitted[actor], self._received[actor] = left, 0
        return left

    def admit(self, items: int) -> list[tuple[int, int]]:
        """
        Admit `items` in total; a smaller number than before changes nothing.

        Returns the actors that may now make more, each with the total of its incarnation.
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
    """
    Return the level to which `free` items raise all lower `amounts`, rounded down.

    For example, 4 free items raise the amounts 1, 2 and 9 to the level 3.
    """
    lowest = sorted(amounts)
    used = 0
    for count, amount in enumerate(lowest, 1):
        used += amount
        level = (used + free) // count
        if count == len(lowest) or level <= lowest[count]:
            return level
    raise AssertionError(amounts)
