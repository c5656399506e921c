"""Plays of a guest before it is published, for the card: what it observes, and its scores."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from arkml.base.loggers import SafeLogger
from arkml.base.short_reprs import cut_repr
from arkml.errors import InvalidArguments, LinkError, NotFound
from arkml.guests.fleet import Fleet
from arkml.guests.guest import Guest
from arkml.hive.protocol.replay_messages import ReplayDocument
from arkml.host import Host
from arkml.limits import Limits
from arkml.replays.documents import document_of
from arkml.runs.evaluation_guests import play_episodes
from arkml.runtime.compiled_module import CompiledModule
from arkml.runtime.wasi.linking import QUIET_GRANT
from arkml.sessions.declarations import SpecLike
from arkml.training.evaluation import evaluate
from arkml.training.evaluations import make_evaluating
from arkml.training.results import EvaluationResult
from arkml.training.tasks import compile_module, find_task

log = SafeLogger(__name__)

FRAMES = 600
"""Frames that are played to learn what the guest observes, and for the picture."""


class Cast(NamedTuple):
    """
    A guest and its policy, with the options of playing them.

    Attributes:
        data: The bytes of the module.
        name: The name of the module.
        policy: An ONNX or Cervo file.
        outputs: Names of the outputs that hold actions, empty to find them.
        behavior: Name of the run whose agents the policy plays, None for the first.
        others: Policy files of the agents of other behaviors, by the names of these.
        numbers: Arguments for the export `configure`; if empty, it is not called.
        seed: Seed of the noise.
        deterministic: Whether there is no noise.
        limits: Limits of the guest.
        spec: The meaning of rows, None to take the module's declaration.

    """

    data: bytes
    name: str
    policy: bytes
    outputs: tuple[str, ...]
    behavior: str | None
    others: Mapping[str, bytes]
    numbers: Sequence[int]
    seed: int
    deterministic: bool
    limits: Limits
    spec: SpecLike


class Rehearsal(NamedTuple):
    """
    The result of playing a guest with its policy.

    Attributes:
        shown: The frames that were played.
        trains: Whether the policy answered training sessions of the guest.

    """

    shown: ReplayDocument
    trains: bool


def rehearsed(cast: Cast, *, trains: bool, may_train: bool) -> Rehearsal:
    """
    Play a guest with its policy, and return the frames.

    With `trains` the policy answers the training sessions of the guest; with `may_train` this is
    tried if no agent acts otherwise. Raises InvalidArguments if no agent acted, and the errors of
    the guest.
    """
    heard = _Heard()
    logger = logging.getLogger("arkml")
    logger.addHandler(heard)
    try:
        for answers_trainings in sorted({trains, may_train or trains}):
            shown = _shown(cast, trains=answers_trainings)
            if any(submit.rows for frame in shown.frames for submit in frame.submits):
                return Rehearsal(shown, answers_trainings)
    finally:
        logger.removeHandler(heard)
    waits = "" if cast.numbers else ", or the guest waits for `configure` (--configure-numbers)"
    raise InvalidArguments(
        f"the agents of {cast.name} did not act in {FRAMES} frames"
        f" ({heard.first or 'it says no reason'}): the policy does not fit the guest{waits}"
    )


class _Heard(logging.Handler):
    """The first warning."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.first = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.first = self.first or record.getMessage()


def _shown(cast: Cast, *, trains: bool) -> ReplayDocument:
    with tempfile.TemporaryDirectory() as scratch:
        trace = Path(scratch, "play.trace")
        _played(cast, trace, trains=trains)
        return document_of(trace, cast.data, spec=cast.spec)


def scored(cast: Cast, episodes: int) -> EvaluationResult | str:
    """
    Evaluate the policy over this number of episodes, and return the result.

    Returns the reason for a guest that starts no training, ends no episode, or imports what an
    evaluation does not grant. Raises the errors of the guest.
    """
    try:
        return evaluate(
            cast.data,
            cast.policy,
            outputs=cast.outputs,
            behavior=cast.behavior,
            others=cast.others,
            episodes=episodes,
            deterministic=cast.deterministic,
            seed=cast.seed,
            limits=cast.limits,
            wasi=True,
        )
    except (NotFound, LinkError) as error:
        return str(error)


def _played(cast: Cast, trace: Path, *, trains: bool) -> None:
    """Play and record frames; with `trains` until an episode has ended."""
    with Host(
        policy=cast.policy,
        policies=cast.others or None,
        outputs=cast.outputs,
        seed=cast.seed,
        deterministic=cast.deterministic,
        limits=cast.limits,
        wasi=QUIET_GRANT,
        trace=trace,
    ) as host:
        compiled = compile_module(host, cast.data, cast.name)
        if trains:
            _trained(cast, host, compiled)
            return
        guest = host.load(compiled)
        _configure(cast, guest)
        for _ in range(FRAMES):
            guest.update()


def _trained(cast: Cast, host: Host, compiled: CompiledModule) -> None:
    """Play an episode with the policy in place of the trainings that the guest starts."""
    task = find_task(compiled, None)
    runner, gateway = make_evaluating(
        host, compiled, task, task.budget(),
        behavior=cast.behavior, others=cast.others, seed=cast.seed,
    )  # fmt: skip

    def begin() -> None:
        runner.initialize()
        _configure(cast, runner.subject)

    played = play_episodes(gateway, runner.step, 1, FRAMES, begin=begin)
    if gateway.failure is not None and not played.returns:
        raise gateway.failure


def _configure(cast: Cast, guest: Guest | Fleet) -> None:
    if cast.numbers and (code := guest.call("configure", *cast.numbers)):
        log.warning("%s: configure answered %s to %s", cast.name, code, cut_repr(cast.numbers))
