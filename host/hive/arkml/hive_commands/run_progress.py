"""How far a run has come toward its goal, in the same terms as the page of a hive."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from arkml.hive.protocol.runs import RunInfo

_NANOSECONDS = 1e9
_BAR = 8
"""Cells of a bar, each of which has eighths."""
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


class RunProgress(NamedTuple):
    """A run's progress: the fraction of the goal that is nearest, or None, and a text about it."""

    share: float | None
    text: str

    @property
    def bar(self) -> str:
        """The fraction as a bar of eight characters, empty without one."""
        if self.share is None:
            return ""
        whole, rest = divmod(round(8 * _BAR * self.share), 8)
        return ("█" * whole + _EIGHTHS[rest].strip()).ljust(_BAR, "░")


def progress_of(run: RunInfo, now: int | None = None) -> RunProgress:
    """Return the progress of a run at a time in nanoseconds since the Unix epoch, or now."""
    from arkml.hive.protocol.runs import OVER

    at = time.time_ns() if now is None else now
    lasted = ((run.ended_at or at) - run.started_at) / _NANOSECONDS
    if run.status in OVER:
        return RunProgress(None, _time(lasted))
    limits = list(_limits(run, at, lasted))
    share, text = max(limits, key=lambda one: one[0]) if limits else (None, _time(lasted))
    return RunProgress(share, ", ".join([text, *_beside(run)]))


def _limits(run: RunInfo, at: int, lasted: float) -> Iterator[tuple[float, str]]:
    """
    Yield each limit of a run: the fraction that is reached, and a text about it.

    The time of a command counts from the first policy, before which a run may wait for a learner,
    and is over once no host takes part.
    """
    from arkml.hive.protocol.runs import Status

    if run.seconds:
        yield _limit(lasted, run.seconds, _time)
    if run.goal:
        if run.goal.seconds and run.status is not Status.PAUSED:
            spent = (at - run.goal.since) / _NANOSECONDS if run.policy_version else 0.0
            yield _limit(spent, run.goal.seconds, _time)
        if run.goal.frames and isinstance(run.frames, int):
            share, text = _limit(run.frames, run.goal.frames, "{:,.0f}".format)
            yield share, f"{text} frames"


def _limit(spent: float, most: float, shown: Callable[[float], str]) -> tuple[float, str]:
    reached = min(spent, most)
    return reached / most, f"{shown(reached)} of {shown(most)}"


def _beside(run: RunInfo) -> Iterator[str]:
    """Yield texts on goals that a run does not approach steadily."""
    if not run.goal:
        return
    if run.goal.frames and not isinstance(run.frames, int):
        yield f"{run.goal.frames:,} frames wanted"
    if (wanted := run.goal.mean_return) is not None:
        latest = run.latest.get("eval/mean_reward", run.latest.get("rollout/ep_rew_mean"))
        reached = "" if latest is None else f"return {latest:.4g}, "
        yield f"{reached}{wanted:.4g} wanted"


def _time(seconds: float) -> str:
    """Return a length of time, such as `45 s`, `12 min`, `3 h 5 min` or `2 d 4 h`."""
    whole = max(0, int(seconds))
    if whole < _MINUTE:
        return f"{round(max(0.0, seconds))} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min"
    if whole < 2 * _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"
    return f"{whole // _DAY} d {whole % _DAY // _HOUR} h"
