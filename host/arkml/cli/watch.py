"""Looks after a training while it goes on: what there is to tell, and whether it can go on."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING

from arkml.closing import Closing
from arkml.errors import (
    ArkmlError,
    HiveError,
    HiveRefused,
    HiveUnreachable,
    NotTrainable,
    Unavailable,
    UsageError,
)
from arkml.hive.protocol.runs import RunInfo, Status
from arkml.terminal import harmless

if TYPE_CHECKING:
    from arkml.hive.client import HiveClient
    from arkml.host import Host

LEARNED, RATED = "rollout/ep_rew_mean", "eval/mean_reward"

_LOOK_EVERY = 1.0
_ANSWERED_WITHIN = 10.0
_SAY_EVERY = 10.0  # seconds between two lines where there is no terminal
_QUIET = 15.0  # seconds after which a guest that trains nothing is worth a line
_FINAL = (401, 403, 507)  # a hive that wants another token, or whose disk is full
_ENDING = 0.5  # seconds that the thread gets to end

Metrics = dict[str, float]


class RunAborted(HiveError):
    """The run that is trained cannot go on."""


class Watch(Closing):
    """
    A thread that asks the hive how the run does, and writes a line on stderr now and then.

    On a terminal the line is rewritten each second, elsewhere one is added every ten. `begun` is
    called with the run once there is one. `frames` is for the player to set. `metrics`, `info` and
    `curves`, the mean returns by rows, are what the hive told last. `verdict` is why there is no
    point in going on, or None.
    """

    def __init__(self, host: Host, begun: Callable[[RunInfo], None]) -> None:
        self.frames = 0
        self.metrics: Metrics = {}
        self.info: RunInfo | None = None
        self.curves: dict[str, dict[int, float]] = {LEARNED: {}, RATED: {}}
        self.verdict: ArkmlError | None = None
        self._host = host
        self._begun: Callable[[RunInfo], None] | None = begun
        self._is_terminal = sys.stderr.isatty()
        self._began = self._said = time.monotonic()
        self._said_of = (0, self._began)
        self._updates = (0.0, self._began)
        self._is_dirty = self._has_warned = False
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="arkml-watch", daemon=True)
        self._thread.start()

    @property
    def has_run(self) -> bool:
        """Whether the guest takes part in a run."""
        hives = self._host.hives
        return hives is not None and hives.is_training

    @property
    def mean_return(self) -> float | None:
        """Of the last 100 training episodes, None before the first."""
        return self.metrics.get(LEARNED)

    def require_hope(self) -> None:
        """Raise what makes it pointless to go on: NotTrainable, HiveUnreachable or RunAborted."""
        verdict = self.verdict or self._refusal()
        if verdict is not None:
            raise verdict

    def rated(self, mean: float) -> None:
        """Keep the mean return of an evaluation that the hive could not be told of."""
        self.curves[RATED][self.info.rows if self.info else 0] = mean

    def close(self) -> None:
        """Stop, and leave the line as it is."""
        self._closed.set()
        self._thread.join(_ENDING)
        self._note()
        if self._is_dirty:
            sys.stderr.write("\n")
            self._is_dirty = False

    def _run(self) -> None:
        while not self._closed.wait(_LOOK_EVERY):
            self._look()
            now = time.monotonic()
            if now - self._said >= (_LOOK_EVERY if self._is_terminal else _SAY_EVERY):
                self._say(now)

    def _look(self) -> None:
        hives = self._host.hives
        assert hives is not None
        self.verdict = self.verdict or self._refusal()
        self._note()
        runs = hives.started
        if not runs:
            if time.monotonic() - self._began > _QUIET and not self._has_warned:
                self._has_warned = True
                sys.stderr.write("the guest has started no training yet\n")
            return
        client, run = runs[0]
        try:
            self._ask(client, run)
        except (HiveError, TimeoutError, CancelledError):
            return  # its client tells when a hive is gone

    def _note(self) -> None:
        """Tell of the run that the guest has started, once."""
        hives = self._host.hives
        assert hives is not None
        begun, runs = self._begun, hives.started
        if begun is None or not runs:
            return
        self._begun = None
        try:
            begun(runs[0][1])
        except UsageError as error:
            sys.stderr.write(f"{error}\n")

    def _ask(self, client: HiveClient, run: RunInfo) -> None:
        """Take over how the run does. Raises HiveError, TimeoutError and CancelledError."""
        info = client.run(run.id).result(_ANSWERED_WITHIN)
        if self.info is None:  # what was before, if it is resumed
            for name, curve in self.curves.items():
                points = client.series(run.id, name).result(_ANSWERED_WITHIN)
                curve.update((point.step, point.value) for point in points)
        self._judge(info, self.info)
        self.info = info
        found = client.metrics(run.id).result(_ANSWERED_WITHIN)
        self.metrics = {name: value for name, value, _ in found}
        for name, value, step in found:
            if name in self.curves:
                self.curves[name][step] = value

    def _judge(self, info: RunInfo, before: RunInfo | None) -> None:
        """Say why the learner of a run has ended, and see whether there will be another one."""
        if info.status is Status.ABORTED:
            self.verdict = RunAborted(f"run {info.name!r} is aborted: {info.reason or 'no reason'}")
            return
        told = before is not None and (before.status, before.reason) == (info.status, info.reason)
        is_news = before is not None and info.reason not in ("", before.reason)
        if is_news or (info.status is Status.UNHEALTHY and not told):
            sys.stderr.write(f"the learner ended, another one starts: {harmless(info.reason)}\n")

    def _refusal(self) -> ArkmlError | None:
        """Why no guest will ever be given a policy, if that is so."""
        hives = self._host.hives
        assert hives is not None
        failure = hives.failure
        if hives.started or failure is None:
            return None
        if isinstance(failure, NotTrainable):
            return failure
        if isinstance(failure, HiveRefused) and failure.status in _FINAL:
            return Unavailable(str(failure))
        if isinstance(failure, HiveUnreachable) and hives.grant.hive == "embedded":
            return Unavailable(str(failure))
        return None

    def _say(self, now: float) -> None:
        frames = self.frames
        if not frames:
            return
        before, since = self._said_of
        self._said_of, self._said = (frames, now), now
        text = f"{frames:,} frames, {(frames - before) / (now - since):,.0f}/s"
        line = " | ".join([text, *self._parts(now)])
        if self._is_terminal:
            sys.stderr.write(f"\r\x1b[2K{line}")
            self._is_dirty = True
        else:
            sys.stderr.write(f"{line}\n")
        sys.stderr.flush()

    def _parts(self, now: float) -> list[str]:
        values = self.metrics
        parts = []
        for name, label in ((LEARNED, "return"), (RATED, "evaluated")):
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
