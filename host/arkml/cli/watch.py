"""What a training tells while it goes on."""

from __future__ import annotations

import sys
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING

from arkml.closing import Closing

if TYPE_CHECKING:
    from arkml.host import Host

_ASK_EVERY = 1.0
_SAY_EVERY = 10.0  # seconds between two lines where there is no terminal
_QUIET = 15.0  # seconds after which a guest that trains nothing is worth a line

Metrics = dict[str, float]


class Watch(Closing):
    """
    Asks the hive for metrics now and then, without waiting, and writes a line on stderr.

    On a terminal the line is rewritten each second, elsewhere one is added every ten.
    """

    def __init__(self, host: Host) -> None:
        self.metrics: Metrics = {}
        self._host = host
        self._is_terminal = sys.stderr.isatty()
        self._began = self._asked = self._said = time.monotonic()
        self._frames = (0, self._began)
        self._updates = (0.0, self._began)
        self._pending: Future[list[tuple[str, float, int]]] | None = None
        self._is_dirty = self._has_warned = False

    @property
    def has_run(self) -> bool:
        """Whether the guest takes part in a run."""
        hives = self._host.hives
        return hives is not None and hives.is_training

    @property
    def mean_return(self) -> float | None:
        """Of the last 100 training episodes, None before the first."""
        return self.metrics.get("rollout/ep_rew_mean")

    def look(self, frames: int) -> None:
        """So many frames are done."""
        now = time.monotonic()
        if now - self._asked < _ASK_EVERY:
            return
        self._asked = now
        pending = self._pending
        if pending is not None and pending.done():
            if pending.exception() is None:
                self.metrics = {name: value for name, value, _ in pending.result()}
            self._pending = None
        if self._pending is None:
            self._ask(now)
        if now - self._said >= (_ASK_EVERY if self._is_terminal else _SAY_EVERY):
            self._say(frames, now)

    def close(self) -> None:
        """Leave the line as it is."""
        if self._is_dirty:
            sys.stderr.write("\n")
            self._is_dirty = False

    def _ask(self, now: float) -> None:
        hives = self._host.hives
        assert hives is not None
        runs = hives.started
        if runs:
            self._pending = hives.client().metrics(runs[0].id)
        elif now - self._began > _QUIET and not self._has_warned:
            self._has_warned = True
            sys.stderr.write("the guest has started no training yet\n")

    def _say(self, frames: int, now: float) -> None:
        before, since = self._frames
        self._frames, self._said = (frames, now), now
        text = f"{frames:,} frames, {(frames - before) / (now - since):,.0f}/s"
        parts = [text, *self._told(now)]
        line = " | ".join(parts)
        if self._is_terminal:
            sys.stderr.write(f"\r\x1b[2K{line}")
            self._is_dirty = True
        else:
            sys.stderr.write(f"{line}\n")
        sys.stderr.flush()

    def _told(self, now: float) -> list[str]:
        values = self.metrics
        parts = []
        for name, label in (("rollout/ep_rew_mean", "return"), ("eval/mean_reward", "evaluated")):
            if name in values:
                parts.append(f"{label} {values[name]:,.4g}")
        if "train/n_updates" in values:
            before, since = self._updates
            done = values["train/n_updates"]
            self._updates = done, now
            parts.append(f"{done:,.0f} updates, {max(0.0, done - before) / (now - since):,.0f}/s")
        if "hive/updates_per_row" in values:
            parts.append(f"{values['hive/updates_per_row']:.3g} a row")
        if "hive/policy_age_seconds" in values:
            parts.append(f"policy {values['hive/policy_age_seconds']:.2g} s old")
        return parts
