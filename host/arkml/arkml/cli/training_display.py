"""The display of a training: a line on stderr while it runs, a table on stdout at its end."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arkml.base.closing import Closing
from arkml.cli.units import counted, sparkline
from arkml.errors import NothingLearned
from arkml.limits import Limits
from arkml.training.pictures import NO_PICTURE, can_draw
from arkml.training.results import TRAINING_RETURN, Evaluation, TrainingProgress, WorkerProgress

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

    from arkml.runtime.module.description import ModuleInfo
    from arkml.training.results import RunNotice, TrainedPolicy, TrainingResult
    from arkml.training.training_options import TrainingOptions

_UPDATES = "train/n_updates"
_INTERVAL_TERMINAL = 1.0
_INTERVAL = 10.0  # seconds between two lines where there is no terminal
_EXPONENT = 100  # from which on two digits would need one


class TrainingDisplay(Closing):
    """
    Writes the progress of a training to stderr, as its `progress` function.

    On a terminal one line is rewritten each second, below what others write to `sys.stderr`;
    elsewhere a line is added every ten seconds.
    """

    def __init__(self) -> None:
        self._console = _terminal()
        self._interval = _INTERVAL if self._console is None else _INTERVAL_TERMINAL
        self._written_at = time.monotonic()
        self._frames = (0, self._written_at)
        self._updates: tuple[float, float] | None = None  # a run that is continued has some
        self._warnings = 0
        self._evaluation: Evaluation | None = None
        self._live: Live | None = None

    def __call__(self, progress: TrainingProgress) -> None:
        """Write the warnings that are new, and the line when it is due."""
        self._warn(progress.warnings)
        if progress.evaluations:
            self._evaluation = progress.evaluations[-1]
        now = time.monotonic()
        if self._updates is None and _UPDATES in progress.metrics:
            self._updates = (progress.metrics[_UPDATES], now)
        if progress.frames and now - self._written_at >= self._interval:
            self._write(progress, now)

    def close(self) -> None:
        """End the line that is being rewritten. Safe to call twice."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def warn_rest(self, warnings: Sequence[str]) -> None:
        """Write the warnings of a finished training that were not written before."""
        self._warn(warnings[self._warnings :])

    def tell_goal(self, notices: Sequence[RunNotice]) -> None:
        """Write that a finished training reached its goal, if it did."""
        for notice in notices:
            if notice.kind == "goal":
                sys.stderr.write(f"{notice.text}\n")

    def _warn(self, warnings: Sequence[str]) -> None:
        for warning in warnings:
            sys.stderr.write(f"{warning}\n")
        self._warnings += len(warnings)

    def _write(self, progress: TrainingProgress, now: float) -> None:
        before, since = self._frames
        self._frames, self._written_at = (progress.frames, now), now
        rate = (progress.frames - before) / (now - since)
        played = f"{counted(progress.frames, 'frame')}, {rate:,.0f}/s"
        line = " | ".join([played, *self._parts(progress)])
        if self._console is None:
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()
            return
        from rich.text import Text

        live = self._live
        if live is None:
            self._live = live = _new_line(self._console)
        live.update(Text(line, no_wrap=False, overflow="fold"), refresh=True)

    def _parts(self, progress: TrainingProgress) -> list[str]:
        values, now = progress.metrics, self._written_at
        parts = []
        if TRAINING_RETURN in values:
            parts.append(f"return {values[TRAINING_RETURN]:,.4g}")
        if self._evaluation is not None:
            parts.append(f"evaluated {shown(self._evaluation)}")
        if self._updates is not None and _UPDATES in values:
            before, since = self._updates
            done = values[_UPDATES]
            self._updates = done, now
            rate = f", {max(0.0, done - before) / (now - since):,.0f}/s" if now > since else ""
            parts.append(f"{done:,.0f} updates{rate}")
        if pace := pace_of(values):
            parts.append(f"{pace} a row")
        if "hive/policy_age_seconds" in values:
            parts.append(f"policy {values['hive/policy_age_seconds']:.2g} s old")
        if progress.workers:
            parts.append(f"workers {rates_of(progress.workers)} rows/s")
        return parts


def _terminal() -> Console | None:
    """Return the terminal at stderr, None where no line can be rewritten there."""
    if not sys.stderr.isatty():
        return None
    from rich.console import Console

    # What others write is shown as it is: not wrapped, and "[x]" is no markup.
    console = Console(stderr=True, markup=False, emoji=False, highlight=False, soft_wrap=True)
    return console if console.is_interactive and not console.is_dumb_terminal else None


def _new_line(console: Console) -> Live:
    """Return a line at the end of the terminal, that stays there while others write to stderr."""
    from rich.live import Live

    live = Live(console=console, auto_refresh=False, redirect_stdout=sys.stdout.isatty())
    live.start()
    console.show_cursor(show=True)  # a process that is killed would leave it hidden
    return live


def rates_of(workers: Sequence[WorkerProgress]) -> str:
    """
    Return the rows per second of each worker as text, such as `900 + -`: the second one is dead.
    """
    return " + ".join(f"{one.rows_per_second:,.0f}" if one.is_alive else "-" for one in workers)


def shown(evaluation: Evaluation) -> str:
    """Return an evaluation as text, such as `212 ± 2.7, 90% success (10 episodes)`."""
    rate = evaluation.success_rate
    text = _mean(evaluation.mean_return, evaluation.standard_error)
    text += "" if rate is None else f", {rate:.0%} success"
    return f"{text} ({counted(len(evaluation.returns), 'episode')})"


def _mean(mean: float, error: float | None) -> str:
    """Return a mean with its standard error, if that is known: `212 ± 2.7`."""
    if error is None:
        return f"{mean:,.4g}"
    return f"{mean:,.4g} ± {error:,.2g}" if error < _EXPONENT else f"{mean:,.4g} ± {error:,.0f}"


def pace_of(metrics: Mapping[str, float]) -> str:
    """Return updates per row as text, with the wanted number: `0.9 of 1`; empty if unknown."""
    reached = metrics.get("hive/updates_per_row")
    wanted = metrics.get("hive/updates_per_row_wanted")
    if reached is None:
        return ""
    return f"{reached:.3g}" if wanted is None else f"{reached:.3g} of {wanted:.3g}"


def document_of(
    guest: Path, module: ModuleInfo, options: TrainingOptions, result: TrainingResult
) -> dict[str, Any]:
    """Return the result of a training as the JSON object of `--json`."""
    files = {name: str(path) for name, path in result.files.items()}
    is_evaluated = len(result.evaluation_curve) > 0
    rated, rated_by = result.best_evaluation, result.best.rated_by
    confirmed = result.best.confirmed
    is_rated_so = is_evaluated if rated_by is None else rated_by == "evaluation"
    returns, training = result.learning_curve.pairs(), result.training_curve.pairs()
    policy = files.get("onnx") or files.get("crvo")
    is_idle = any(isinstance(error, NothingLearned) for error in result.errors)
    others = result.other_policies
    named = _named_policies({result.run_name: result.best, **others}, module) if others else None
    is_run = infers(module) and (named is not None or not others)
    own = named if named is not None and is_run else [policy or ""]
    play = command_to_play(guest, own, options, infers=is_run)
    if not is_run:
        play += _others(result)
    return {
        "guest": options.name,
        "run": result.run_id,
        "name": result.run_name,
        "end_reason": result.end_reason,
        "fps": options.fps,
        "rows": result.rows,
        "updates": result.updates,
        "versions": result.versions,
        "mean_return": {
            "of": "evaluations" if is_evaluated else "training episodes",
            "first": returns[0][1] if returns else None,
            "last": returns[-1][1] if returns else None,
            "series": returns,
        },
        "training_return": {
            "first": training[0][1] if training else None,
            "last": training[-1][1] if training else None,
        },
        "evaluations": [
            {"version": one.version, "rows": one.rows, **_evaluation(one)}
            for one in result.evaluations
        ],
        "policy": {
            "which": result.best.kind,
            "score": result.best.score,
            "score_error": None if rated is None else rated.standard_error,
            "episodes": None if rated is None else len(rated.returns),
            "rated_by": "evaluations"
            if is_rated_so
            else "training episodes that began under it, or beside it",
            "confirmed": None if confirmed is None else _evaluation(confirmed),
            "onnx": files.get("onnx"),
            "crvo": files.get("crvo"),
            "last": files.get("last"),
        },
        "other_policies": {
            name: {"which": one.kind, "onnx": None if one.path is None else str(one.path)}
            for name, one in others.items()
        },
        "curve": files.get("curve"),
        "traces": files.get("traces"),
        "metrics": dict(result.metrics),
        "health": list(result.health),
        "notices": [{"kind": one.kind, "text": one.text, "at": one.at} for one in result.notices],
        "refusals": dict(sorted(result.statistics.refusals.items())),
        "play": play if policy and result.updates and not is_idle else None,
        "frames": result.frames,
        "seconds": round(result.seconds, 3),
        "late_frames": result.late_frames,
        "workers": [
            {
                "worker": one.worker,
                "replaced": one.incarnation,
                "frames": one.frames,
                "rows": one.rows,
                "rows_per_second": round(one.rows_per_second, 1),
            }
            for one in result.workers
        ],
    }


def _evaluation(one: Evaluation) -> dict[str, Any]:
    """Return the figures of an evaluation as JSON values."""
    return {
        "episodes": len(one.returns),
        "mean": one.mean_return,
        "standard_deviation": one.standard_deviation,
        "standard_error": one.standard_error,
        "success_rate": one.success_rate,
    }


def infers(module: ModuleInfo) -> bool:
    """Return whether a guest also asks for actions outside of trainings."""
    return any("inference" in f"{one.module} {one.name}" for one in module.imports)


def _named_policies(policies: Mapping[str, TrainedPolicy], module: ModuleInfo) -> list[str] | None:
    """
    Return `--policy` for the runs of a guest, such as `goblin=goblin.onnx` or `8,2=goblin.onnx`.

    Sessions of inference have no name: behaviors are told apart by their numbers, and named where
    the guest declares them. Returns None if they cannot be told apart, or if a file is missing.
    """
    from arkml.sessions.branches import DeclaredBranches

    shapes = {one.shape for one in policies.values()}
    if len(shapes) < len(policies) or any(one.path is None for one in policies.values()):
        return None
    if policies.keys() <= DeclaredBranches(module.spec).behaviors.keys():
        return [f"{name}={one.path}" for name, one in policies.items()]
    return ["{},{}={}".format(*one.shape or (), one.path) for one in policies.values()]


def _others(result: TrainingResult) -> str:
    """Return the options of `arkml evaluate` for the policies of other runs, empty without any."""
    files = {name: one.path for name, one in result.other_policies.items()}
    words = [f"--other {shlex.quote(f'{name}={path}')}" for name, path in files.items() if path]
    if len(words) < len(files):  # else the one without is the one that is rated
        words.append(f"--behavior {shlex.quote(result.run_name)}")
    return "".join(f" {word}" for word in words)


def command_to_play(
    guest: Path, policies: Sequence[str], options: TrainingOptions, *, infers: bool
) -> str:
    """
    Return a shell command that plays a guest with its trained policies.

    Args:
        guest: The guest's module.
        policies: Paths of the policies' files, with the names of their behaviors if there are
            several: `goblin=goblin.onnx`.
        options: The options of the training, which the command repeats.
        infers: Whether the guest asks a policy for actions outside of training. If it never does,
            the command is `arkml evaluate`, in which the policy answers the guest's training
            sessions; otherwise it is `arkml run`.

    """
    module = f"./{guest}" if str(guest).startswith("-") else str(guest)  # not an option
    words = ["arkml", "run" if infers else "evaluate", module]
    for policy in policies:
        words += ["--policy", policy]
    if not infers and options.max_episode_steps is not None:
        words += ["--max-episode-steps", str(options.max_episode_steps)]
    if options.arguments is not None:
        words += ["--cmdlet", options.arguments]
    if options.imports is not None:
        words += ["--imports", options.imports]
    if options.wasi:
        words.append("--wasi")
    for field in fields(Limits):
        value = getattr(options.limits, field.name)
        if value != field.default:
            words += ["--limit", f"{field.name}={'none' if value is None else value}"]
    return shlex.join(words)


def show(document: dict[str, Any], *, is_new: bool) -> None:
    """
    Print the table of a finished training on stdout.

    `is_new` is False if the training continued an earlier one, or joined that of others, whose
    updates are counted, too.
    """
    from arkml.cli import tables

    means, policy, seconds = document["mean_return"], document["policy"], document["seconds"]
    rows = [
        ("frames", f"{document['frames']:,} in {seconds:,.1f} s"),
        ("rows learned from", f"{document['rows']:,}"),
        ("updates", _updates(document, is_new=is_new)),
        ("policy versions", f"{document['versions']:,}"),
    ]
    if document["fps"] is not None:
        late = f"{document['late_frames']:,} at {document['fps']:g} frames a second"
        rows.append(("late frames", late))
    if means["first"] is not None:
        span = f"{means['first']:,.4g} -> {means['last']:,.4g} ({means['of']})"
        rows += [("mean return", span), ("", sparkline([value for _, value in means["series"]]))]
    if document["evaluations"]:
        trained = document["training_return"]
        if trained["first"] is not None:  # evaluations begin when much may be learned already
            rows.append(("while training", f"{trained['first']:,.4g} -> {trained['last']:,.4g}"))
        last = document["evaluations"][-1]
        rate = last["success_rate"]
        text = _mean(last["mean"], last["standard_error"])
        text += "" if rate is None else f", {rate:.0%} success"
        rows.append(("last evaluation", f"{text} ({counted(last['episodes'], 'episode')})"))
    for one in document["workers"]:
        text = f"{one['rows']:,} rows, {one['rows_per_second']:,.0f}/s"
        text += f", replaced {one['replaced']:,} times" if one["replaced"] else ""
        rows.append((f"worker {one['worker']}", text))
    rows += [*tables.refusal_rows(document["refusals"])]
    rows += [("beware", sentence) for sentence in document["health"]]
    best = f" (by {_rating(policy)})" if policy["which"] == "best" else ""
    labels = {"held": "policy at hand", "now": "policy at the end"}
    label = labels.get(policy["which"], f"{policy['which']} policy")
    files = ", ".join(filter(None, (policy["onnx"], policy["crvo"]))) or "not written"
    rows += [(label, files + best)]
    if policy["which"] == "best":
        rows.append(("last policy", policy["last"] or "not written"))
    for name, other in document["other_policies"].items():
        rows.append(("other policy", f"{name}: {other['onnx'] or 'not written'}"))
    no_curve = "not written" if can_draw() else NO_PICTURE
    rows.append(("learning curve", document["curve"] or no_curve))
    if document["traces"]:
        rows.append(("traces", f"{document['traces']}, for arkml replay"))
    if document["play"]:
        rows.append(("play it", document["play"]))
    tables.show(f"{document['guest']}: {document['name']}", tables.facts(rows))


def _rating(policy: Mapping[str, Any]) -> str:
    """Return how the best policy was rated, such as `evaluations: 212 ± 2.7 in 20 episodes`."""
    if policy["episodes"] is None:
        return str(policy["rated_by"])
    score = _mean(policy["score"], policy["score_error"])
    rating = f"{policy['rated_by']}: {score} in {counted(policy['episodes'], 'episode')}"
    if (again := policy["confirmed"]) is None:
        return rating
    mean = _mean(again["mean"], again["standard_error"])
    return f"{rating}; {mean} in {again['episodes']} after the choice"


def _updates(document: Mapping[str, Any], *, is_new: bool) -> str:
    updates, rows, metrics = document["updates"], document["rows"], document["metrics"]
    parts = []
    if is_new:
        parts.append(f"{updates / max(document['seconds'], 1e-9):,.0f}/s")
        if rows:
            metrics = {**metrics, "hive/updates_per_row": updates / rows}
    if pace := pace_of(metrics):
        parts.append(f"{pace} a row")
    return f"{updates:,} ({', '.join(parts)})" if parts else f"{updates:,}"
