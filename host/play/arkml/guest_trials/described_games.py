"""Declared games (title, goal, score and so on) as messages to the pages of players."""

from __future__ import annotations

from collections.abc import Iterable

from arkml.hive.protocol.shown_games import ShownCoordinate, ShownGame
from arkml.trials.wire.players_pb2 import Coordinate, Game, Score, Target, Wall


def described_game(game: ShownGame) -> Game:
    """Return the message by which players' pages show a game."""
    score = game.score
    return Game(
        title=game.title,
        goal=game.goal,
        score=Score(
            name=score.name,
            unit=score.unit,
            less=score.less,
            observed=score.observed,
            feature=score.feature,
        ),
        targets=[
            Target(at=_coordinates(one.at), radius=one.radius, name=one.name)
            for one in game.targets
        ],
        walls=[Wall(at=_coordinates(one.at), box=one.box) for one in game.walls],
    )


def _coordinates(given: Iterable[ShownCoordinate]) -> list[Coordinate]:
    return [
        Coordinate(value=one.value, scale=one.scale, feature=one.feature, relative=one.relative)
        for one in given
    ]
