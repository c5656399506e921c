"""The files that a training leaves, and what is told of it at the end."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from arkml.cli.files import write_file
from arkml.cli.learned import HELD, Curve, Learned
from arkml.cli.train_command import Training
from arkml.cli.units import sparkline
from arkml.errors import UsageError


def write_files(training: Training, found: Learned) -> tuple[dict[str, str], list[str]]:
    """
    Write the policy in two formats, then the curve if matplotlib is there.

    Returns their paths, and a sentence for each that cannot be written.
    """
    from arkml.cli.snapshots import packed

    written: dict[str, str] = {}
    complaints: list[str] = []

    def write(name: str, path: Path, make: Callable[[], bytes]) -> None:
        try:
            write_file(path, make())
            written[name] = str(path)
        except UsageError as error:
            complaints.append(str(error))
        except Exception as error:  # noqa: BLE001  one that cannot be made costs no other one
            complaints.append(f"{path} cannot be made: {type(error).__name__} {error}".rstrip())

    base = training.out / training.guest.stem
    for suffix in ("onnx", "crvo"):
        path = base.with_suffix(f".{suffix}")
        write(suffix, path, partial(packed, found.policy, path))
    if find_spec("matplotlib") is not None:
        title = f"{found.info.name} ({training.guest.name})"
        curve = partial(_drawn, title, found.learned, found.rated)
        write("curve", training.out / "learning_curve.png", curve)
    return written, complaints


def _drawn(title: str, learned: Curve, rated: Curve) -> bytes:
    """The curve as a PNG file. Raises whatever matplotlib does, also when it is imported."""
    from arkml.cli.curve import draw

    return draw(title, learned, rated)


def document_of(training: Training, found: Learned, files: dict[str, str]) -> dict[str, Any]:
    """What is told of a training; the player's part is left to be added."""
    returns = found.rated or found.learned
    policy = files.get("onnx") or files.get("crvo")
    return {
        "guest": training.guest.name,
        "run": found.info.id,
        "name": found.info.name,
        "fps": training.fps,
        "rows": found.info.rows,
        "updates": found.info.n_opts,
        "versions": found.info.policy_version,
        "mean_return": {
            "of": "evaluations" if found.rated else "training episodes",
            "first": returns[0][1] if returns else None,
            "last": returns[-1][1] if returns else None,
            "series": returns,
        },
        "policy": {
            "which": found.which,
            "rated_by": "evaluations"
            if found.rated
            else "the mean of the last 100 training episodes",
            "onnx": files.get("onnx"),
            "crvo": files.get("crvo"),
        },
        "curve": files.get("curve"),
        "metrics": found.metrics,
        "play": f"arkml run {training.guest} --policy {policy}" if policy else None,
    }


def show(document: dict[str, Any]) -> None:
    """Write the table of a training on stdout."""
    from arkml.cli import tables

    means, policy, seconds = document["mean_return"], document["policy"], document["seconds"]
    rows = [
        ("frames", f"{document['frames']:,} in {seconds:,.1f} s"),
        ("rows learned from", f"{document['rows']:,}"),
        ("updates", f"{document['updates']:,} ({document['updates'] / max(seconds, 1e-9):,.0f}/s)"),
        ("policy versions", f"{document['versions']:,}"),
    ]
    if document["fps"] is not None:
        late = f"{document['late_frames']:,} at {document['fps']:g} frames a second"
        rows.append(("late frames", late))
    if means["first"] is not None:
        told = f"{means['first']:,.4g} -> {means['last']:,.4g} ({means['of']})"
        rows += [("mean return", told), ("", sparkline([value for _, value in means["series"]]))]
    best = f" (by {policy['rated_by']})" if policy["which"] == "best" else ""
    label = "policy at hand" if policy["which"] == HELD else f"{policy['which']} policy"
    files = ", ".join(filter(None, (policy["onnx"], policy["crvo"]))) or "not written"
    rows += [
        (label, files + best),
        ("learning curve", document["curve"] or _no_curve()),
        ("play it", document["play"] or ""),
    ]
    tables.show(f"{document['guest']}: {document['name']}", tables.facts(rows))


def _no_curve() -> str:
    return "not written" if find_spec("matplotlib") else "none: matplotlib is not installed"
