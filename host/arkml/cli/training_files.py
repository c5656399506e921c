"""The files that a training leaves, and what is told of it at the end."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from arkml.cli.files import write_file
from arkml.cli.learned import HELD, Learned
from arkml.cli.train_command import Training
from arkml.cli.units import sparkline
from arkml.errors import UsageError


def write_files(training: Training, found: Learned) -> tuple[dict[str, str], list[str]]:
    """
    Write the policy in two formats, and the curve if matplotlib is there.

    Returns their paths, and a sentence for each that cannot be written.
    """
    from arkml.cli.snapshots import packed

    base = training.out / training.guest.stem
    wanted = {suffix: base.with_suffix(f".{suffix}") for suffix in ("onnx", "crvo")}
    data = {suffix: packed(found.policy, path) for suffix, path in wanted.items()}
    if find_spec("matplotlib") is not None:
        from arkml.cli.curve import draw

        wanted["curve"] = training.out / "learning_curve.png"
        title = f"{found.info.name} ({training.guest.name})"
        data["curve"] = draw(title, found.learned, found.rated)
    written, complaints = {}, []
    for name, path in wanted.items():
        try:
            write_file(path, data[name])
            written[name] = str(path)
        except UsageError as error:
            complaints.append(str(error))
    return written, complaints


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
