"""
Declarations of games for people: title, goal, score, and targets and walls with their features.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from arkml.base.short_reprs import cut_repr
from arkml.base.terminal import harmless
from arkml.errors import InvalidSpec
from arkml.hive.protocol.shown_games import (
    ShownCoordinate,
    ShownGame,
    ShownScore,
    ShownTarget,
    ShownWall,
)

RETURN = "return"
"""What counts unless a feature does: the sum of an episode's rewards."""

_MOST = 1e6  # of a coordinate
_MOST_NAMED = 12  # features in a message

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=140)]
_Coordinate = float | _Name


class TargetDeclared(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The declaration of a point to reach; its coordinates are numbers, or names of features."""

    at: tuple[_Coordinate, _Coordinate]
    radius: float = 0.0
    name: Annotated[str, msgspec.Meta(max_length=40)] = ""
    relative: bool = False
    scale: float = 1.0


class WallDeclared(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """
    The declaration of a line or box between two points, given by numbers or names of features.
    """

    at: tuple[_Coordinate, _Coordinate, _Coordinate, _Coordinate]
    shape: Literal["line", "box"] = "line"
    relative: bool = False
    scale: float = 1.0


class ScoreDeclared(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The declaration of a score: the return, or a feature of an episode's last row."""

    of: _Name = RETURN
    name: Annotated[str, msgspec.Meta(max_length=40)] = ""
    unit: Annotated[str, msgspec.Meta(max_length=12)] = ""
    better: Literal["more", "less"] = "more"


class GameDeclared(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The declaration of a game: texts and drawings for people who play or watch a behavior."""

    title: Annotated[str, msgspec.Meta(max_length=80)] = ""
    goal: Annotated[str, msgspec.Meta(max_length=200)] = ""
    score: ScoreDeclared | None = None
    targets: Annotated[list[TargetDeclared], msgspec.Meta(max_length=64)] = []
    walls: Annotated[list[WallDeclared], msgspec.Meta(max_length=256)] = []

    @property
    def has_map(self) -> bool:
        """Whether targets or walls are drawn in the plane."""
        return bool(self.targets or self.walls)

    @property
    def game_text(self) -> str:
        """
        A short text of the declared title, goal, score, and numbers of targets and walls, or "".
        """
        told = []
        if self.title:
            told.append(f"title {harmless(self.title)!r}")
        if self.goal:
            told.append(f"goal {harmless(self.goal)!r}")
        if self.score is not None:
            unit = f" in {harmless(self.score.unit)}" if self.score.unit else ""
            told.append(f"score {harmless(self.score.of)}{unit}, {self.score.better} is better")
        counts = ((len(self.targets), "target"), (len(self.walls), "wall"))
        told += [f"{count} {what}{'s' * (count > 1)}" for count, what in counts if count]
        return "; ".join(told)

    def shown_game(self, features: Mapping[str, int], where: str) -> ShownGame | None:
        """
        Return the game as web pages show it, None if no game is declared.

        Args:
            features: The index of each feature in a row, by its name.
            where: The beginning of error messages.

        Raises:
            InvalidSpec: A named feature is not in the row, or a number cannot be drawn.

        """
        if not (self.title or self.goal or self.score or self.has_map):
            return None
        found = _Features(features, where)
        targets = [
            ShownTarget(
                (found.coordinate(one, 0), found.coordinate(one, 1)),
                found.size(one.radius, "the radius of a target", least=0.0),
                harmless(one.name),
            )
            for one in self.targets
        ]
        walls = []
        for wall in self.walls:
            x, y, to_x, to_y = (found.coordinate(wall, place) for place in range(4))
            walls.append(ShownWall((x, y, to_x, to_y), wall.shape == "box"))
        score = found.score(self.score or ScoreDeclared())
        return ShownGame(harmless(self.title), harmless(self.goal), score, targets, walls)


class _Features:
    """The features of a row by name, for the errors of one declaration."""

    def __init__(self, features: Mapping[str, int], where: str) -> None:
        self._features = features
        self._where = where

    def coordinate(self, one: TargetDeclared | WallDeclared, place: int) -> ShownCoordinate:
        """Return a coordinate, by its index: even indices are x."""
        given = one.at[place]
        if not isinstance(given, str):
            return ShownCoordinate(self.size(given, "a coordinate"))
        scale = self.size(one.scale, "the scale of a coordinate")
        index = self._index_of(given, "a coordinate")
        return ShownCoordinate(0.0, scale, index, one.relative)

    def score(self, declared: ScoreDeclared) -> ShownScore:
        """Return the score."""
        is_observed = declared.of != RETURN
        index = self._index_of(declared.of, "the score") if is_observed else 0
        name, unit = harmless(declared.name or declared.of), harmless(declared.unit)
        return ShownScore(name, unit, declared.better == "less", is_observed, index)

    def size(self, number: float, what: str, *, least: float = -_MOST) -> float:
        """Return a number that a plane has room for."""
        if not (math.isfinite(number) and least <= number <= _MOST):
            raise InvalidSpec(
                f"{self._where}: {what} is {number:g}, and takes a number from {least:g} to"
                f" {_MOST:g}"
            )
        return number

    def _index_of(self, name: str, what: str) -> int:
        index = self._features.get(name)
        if index is None:
            known = ", ".join(repr(one) for one in list(self._features)[:_MOST_NAMED])
            more = ", …" if len(self._features) > _MOST_NAMED else ""
            raise InvalidSpec(
                f"{self._where}: {what} is {cut_repr(name)}, which is not a feature: name one of"
                f" {known}{more}"
            )
        return index
