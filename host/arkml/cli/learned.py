"""The outcome of a training: from the hive or, if that is gone, what the host holds of it."""

from __future__ import annotations

import time
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from arkml.cli.signals import SIGNALS
from arkml.cli.snapshots import fetch
from arkml.cli.watch import LEARNED, RATED, Metrics, Watch
from arkml.errors import HiveError, HiveUnreachable, NotFound

if TYPE_CHECKING:
    from arkml.cli.task_runner import Player
    from arkml.hive.client import HiveClient
    from arkml.hive.protocol.runs import RunInfo

T = TypeVar("T")
Curve = list[tuple[int, float]]

HELD = "held"
"""The policy that the host acted with last."""

_PATIENCE = 30.0  # seconds for all answers of a hive together
_LITTLE = 3.0  # of one that was gone just now
_SLICE = 0.1


@dataclass(frozen=True, slots=True)
class Learned:
    """
    What a run has come to.

    `which` policy it is: "best", "now" or "latest" of the hive, or `HELD`. `learned` and `rated`
    are mean returns by rows. `missing` says why the hive did not give all of it, empty if it did.
    """

    which: str
    policy: bytes
    learned: Curve
    rated: Curve
    metrics: Metrics
    info: RunInfo
    missing: str = ""


class Answers:
    """Waits for answers of a hive, all in all so many seconds, and no longer in a hurry."""

    def __init__(self, client: HiveClient) -> None:
        self._seconds = _LITTLE if client.is_gone else _PATIENCE
        self._until = time.monotonic() + self._seconds

    def settle(self, future: Future[T]) -> None:
        """Wait until there is an answer, or an error. Raises HiveUnreachable if none comes."""
        while not future.done():
            if SIGNALS.hurry:
                raise HiveUnreachable("the hive was not waited for")
            left = self._until - time.monotonic()
            if left <= 0:
                raise HiveUnreachable(f"the hive did not answer within {self._seconds:g} s")
            try:
                future.exception(min(left, _SLICE))
            except (TimeoutError, CancelledError):
                continue

    def wait(self, future: Future[T]) -> T:
        """An answer. Raises HiveError."""
        self.settle(future)
        try:
            return future.result()
        except CancelledError:
            raise HiveUnreachable("the client of the hive is closed") from None


def learned(
    client: HiveClient, run: RunInfo, player: Player, watch: Watch, reports: list[Future[bool]]
) -> Learned:
    """
    Gather what a run came to, after the `reports` of evaluations have arrived.

    Raises NotFound if there is no policy yet, neither at the hive nor here.
    """
    answers = Answers(client)
    curves = {name: sorted(points.items()) for name, points in watch.curves.items()}
    metrics, info, missing = watch.metrics, watch.info or run, ""
    held = held_policy(player)
    try:
        for report in reports:
            answers.settle(report)  # one that failed says nothing of the policies
        which, policy = fetch(client, run.id, ("best", "now", "latest"), answers.wait)
    except (HiveError, NotFound) as error:
        if held is None:
            raise NotFound(f"run {run.name!r} has no policy yet: {error}") from error
        which, (version, policy) = HELD, held
        missing = f"{error}; the policy is version {version}, which was at hand"
    try:
        for name in curves:
            points = answers.wait(client.series(run.id, name))
            curves[name] = [(point.step, point.value) for point in points]
        metrics = {name: value for name, value, _ in answers.wait(client.metrics(run.id))}
        info = answers.wait(client.run(run.id))
    except HiveError as error:
        missing = missing or f"{error}; the curve may lack its end"
    return Learned(which, policy, curves[LEARNED], curves[RATED], metrics, info, missing)


def held_policy(player: Player) -> tuple[int, bytes] | None:
    """The newest version that a host has loaded of its first run, and its ONNX file."""
    from arkml.guests.fleet import Fleet
    from arkml.guests.guest import calls_of
    from arkml.runs.gateway import HiveRunGateway

    subject = player.subject
    guest = subject.guests[0] if isinstance(subject, Fleet) else subject
    hives = calls_of(guest).services.hives
    part = hives.first if isinstance(hives, HiveRunGateway) else None
    return None if part is None else part.latest
