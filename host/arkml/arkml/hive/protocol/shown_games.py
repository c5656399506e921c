"""What pages show of a game that people watch and play: its title, its goal, what counts, a map."""

from __future__ import annotations

from arkml.hive.protocol.wire import Count, WireStruct


class ShownCoordinate(WireStruct, frozen=True):
    """
    A coordinate in the plane, of which each row may have another.

    It is `value`, plus `scale` times the feature `feature`, plus the agent's own coordinate if it
    is `relative`. Without a scale it is fixed.
    """

    value: float = 0.0
    scale: float = 0.0
    feature: Count = 0
    relative: bool = False


class ShownTarget(WireStruct, frozen=True):
    """A ring around a point, x and y, with a radius in units of the plane, and a name or none."""

    at: tuple[ShownCoordinate, ShownCoordinate]
    radius: float
    name: str = ""


class ShownWall(WireStruct, frozen=True):
    """A line between two points, x, y, x, y, or the box of which these are opposite corners."""

    at: tuple[ShownCoordinate, ShownCoordinate, ShownCoordinate, ShownCoordinate]
    box: bool = False


class ShownScore(WireStruct, frozen=True):
    """
    The number that counts in an episode.

    Attributes:
        name: What people call it.
        unit: Its unit, such as "s", or empty.
        less: Whether less is better.
        observed: Whether it is the feature `feature` of the last row; else it is the return.
        feature: The index of that feature.

    """

    name: str = "return"
    unit: str = ""
    less: bool = False
    observed: bool = False
    feature: Count = 0


class ShownGame(WireStruct, frozen=True):
    """A title and a sentence with the goal, each may be empty; the score, targets and walls."""

    title: str
    goal: str
    score: ShownScore
    targets: list[ShownTarget]
    walls: list[ShownWall]
