"""Descriptions of games for pages where people watch and play: title, goal, score, map."""

from __future__ import annotations

from arkml.hive.protocol.wire import Count, WireStruct


class ShownCoordinate(WireStruct, frozen=True):
    """
    A coordinate in the plane, which may depend on the row that is shown.

    It is `value`, plus `scale` times the feature with the index `feature`, plus the agent's own
    coordinate if it is `relative`. With a scale of 0 it does not depend on a feature.
    """

    value: float = 0.0
    scale: float = 0.0
    feature: Count = 0
    relative: bool = False


class ShownTarget(WireStruct, frozen=True):
    """
    A ring that a page draws: its center (x, y), its radius in units of the plane, and its name.
    """

    at: tuple[ShownCoordinate, ShownCoordinate]
    radius: float
    name: str = ""


class ShownWall(WireStruct, frozen=True):
    """
    A line that a page draws between two points, or with `box` the box with these corners.

    `at` is x and y of the one, then x and y of the other.
    """

    at: tuple[ShownCoordinate, ShownCoordinate, ShownCoordinate, ShownCoordinate]
    box: bool = False


class ShownScore(WireStruct, frozen=True):
    """
    The score of an episode: its return, or a feature.

    Attributes:
        name: Name of the score for people.
        unit: Its unit, such as "s", or empty.
        less: Whether less is better.
        observed: True if the score is a feature of the last row, False if it is the return.
        feature: The index of that feature.

    """

    name: str = "return"
    unit: str = ""
    less: bool = False
    observed: bool = False
    feature: Count = 0


class ShownGame(WireStruct, frozen=True):
    """
    The description of a game for people.

    Attributes:
        title: Title, or empty.
        goal: The goal as a sentence, or empty.
        score: The score of an episode.
        targets: Rings to draw.
        walls: Walls to draw.

    """

    title: str
    goal: str
    score: ShownScore
    targets: list[ShownTarget]
    walls: list[ShownWall]
