"""The picture of a card: the paths of agents, or the rewards of a play."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from arkml.hive.protocol.replay_messages import ReplayDocument, ShownNumber

_MOST_AGENTS = 8
_SIDE, _MARGIN = 320, 16  # pixels
_INKS = ("#1f6fb8", "#d2691e", "#2c8a4b", "#8e4fb8", "#c43d5d", "#0b8793", "#9a7d0a", "#5b6770")

_Line: TypeAlias = Sequence[tuple[float, float]]


def picture_of(shown: ReplayDocument) -> bytes:
    """Return an SVG drawing: the paths of the first agents, or else the mean reward by frame."""
    lines = [line for line in (_ways(shown) or [_rewards(shown)]) if line]
    size = _SIDE - 2 * _MARGIN
    across = _scale([x for line in lines for x, _ in line], size)
    up = _scale([y for line in lines for _, y in line], size)
    drawn = "".join(
        f'<polyline fill="none" stroke="{_INKS[place % len(_INKS)]}" stroke-width="2" points="'
        + " ".join(f"{_MARGIN + across(x):.1f},{_SIDE - _MARGIN - up(y):.1f}" for x, y in line)
        + '"/>'
        for place, line in enumerate(lines)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_SIDE} {_SIDE}" width="{_SIDE}"'
        f' height="{_SIDE}"><rect width="100%" height="100%" rx="12" fill="#f4f5f7"/>{drawn}'
        "</svg>\n"
    ).encode()


def _ways(shown: ReplayDocument) -> list[_Line]:
    """Return the ways of agents whose behavior has positions."""
    ways: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for frame in shown.frames:
        for submit in frame.submits:
            places = shown.behaviors[submit.behavior].positions
            if len(places) != 2:
                continue
            for agent, row in zip(submit.agents, submit.observations, strict=False):
                known = (submit.session, agent) in ways
                if (known or len(ways) < _MOST_AGENTS) and max(places) < len(row):
                    point = _number(row[places[0]]), _number(row[places[1]])
                    ways.setdefault((submit.session, agent), []).append(point)
    return list(ways.values())


def _rewards(shown: ReplayDocument) -> _Line:
    points = []
    for place, frame in enumerate(shown.frames):
        rewards = [_number(one) for submit in frame.submits for one in submit.rewards]
        if rewards:
            points.append((float(place), sum(rewards) / len(rewards)))
    return points


def _number(value: ShownNumber) -> float:
    """Return a number, 0 for one that is not finite."""
    number = float(value)
    return number if number - number == 0 else 0.0


def _scale(values: Iterable[float], size: float) -> Callable[[float], float]:
    """Return a function to places from 0 to `size`; values that are alike are in the middle."""
    known = list(values) or [0.0]
    low, high = min(known), max(known)
    if low == high:
        return lambda _: size / 2
    return lambda value: size * (value - low) / (high - low)
