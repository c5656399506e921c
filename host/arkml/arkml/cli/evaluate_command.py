"""`arkml evaluate`: plays episodes of a guest with each of some policies, to compare them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from arkml.base.files import named
from arkml.cli import options
from arkml.cli.exits import GOOD, exit_code, print_error, print_json
from arkml.cli.launch import read_policy
from arkml.cli.user_files import read_module
from arkml.cli.values import whole_number
from arkml.errors import ArkmlError

_EPISODES = 100

_EPILOG = options.epilog(
    "arkml evaluate walker.wasm --policy walker.onnx",
    "arkml evaluate walker.wasm --policy walker.onnx --policy walker.last.onnx --episodes 500",
    "arkml evaluate walker.wasm --policy walker.crvo --noise --seed 1 --json",
    "arkml evaluate hunt.wasm --policy hunter.onnx --other prey=prey.onnx",
    notes="""
Each policy plays the same number of episodes, shared out evenly among the agents before they begin.
The standard error says how far the mean return may be off: two policies differ if their means are
several of it apart.
""",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateOptions:
    """The options of `arkml evaluate`."""

    guest: options.GuestFile
    policy: Annotated[
        list[Path],
        typer.Option(
            metavar="FILE",
            help="An ONNX or Cervo file that plays (any number of times).",
            show_default=False,
        ),
    ]
    episodes: Annotated[
        int,
        typer.Option(
            metavar="N", parser=whole_number("--episodes", 1), help="Episodes of each policy."
        ),
    ] = _EPISODES
    frames: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=whole_number("--frames", 1),
            help="Step N frames at most, by default 500 for each episode, and 20,000 at least.",
            show_default=False,
        ),
    ] = None
    play: options.PolicyPlayOptions
    output: options.OutputOptions


def register(app: typer.Typer) -> None:
    """Add the command `arkml evaluate` to the application."""
    options.add_command(app, "evaluate", EvaluateOptions, evaluate_policies, epilog=_EPILOG)


def evaluate_policies(options: EvaluateOptions) -> int:
    """Play episodes with policies, and compare their returns."""
    options.output.start_logs()
    played = options.play.keywords()
    read_module(options.guest)
    limits, outputs = played["limits"], played["outputs"]  # a wrong file is told before any plays
    for path in played["others"].values():
        read_policy(path, limits)
    files = [(path, read_policy(path, limits, outputs)) for path in options.policy]
    policies: list[dict[str, Any]] = []
    failure: ArkmlError | None = None
    try:
        for path, policy in files:
            try:
                figures = _rated(options, path, policy, played)
            except ArkmlError as error:
                if len(options.policy) == 1:
                    raise
                print_error(named(path, str(error)))  # and the others are not lost
                failure, figures = failure or error, {"error": str(error)}
            policies.append({"policy": str(path)} | figures)
    except KeyboardInterrupt:
        if not options.output.as_json:
            _show(options.guest.name, policies)
        raise
    if options.output.as_json:
        print_json(
            {
                "guest": options.guest.name,
                "episodes": options.episodes,
                "seed": options.play.seed,
                "policies": policies,
            }
        )
    else:
        _show(options.guest.name, policies)
    return GOOD if failure is None else exit_code(failure)


def _rated(
    options: EvaluateOptions, path: Path, policy: bytes, played: Mapping[str, Any]
) -> dict[str, Any]:
    """
    Return the figures of the episodes of a policy, the contents of a file.

    `played` are keyword arguments of `arkml.evaluate`. Raises as that does.
    """
    from arkml.cli.progress import ProgressBar
    from arkml.training.evaluation import evaluate

    with ProgressBar(path.name, options.episodes) as bar:
        rated = evaluate(
            options.guest,
            policy,
            episodes=options.episodes,
            frames=options.frames,
            progress=lambda _, episodes: bar(episodes),
            **played,
        )
    if rated.shortfall:
        sys.stderr.write(f"{path}: {rated.shortfall}\n")
    returns = rated.returns
    return {
        "episodes": len(returns),
        "mean_return": rated.mean_return,
        "standard_error": rated.standard_error,
        "standard_deviation": rated.standard_deviation if len(returns) > 1 else None,
        "lowest_return": float(returns.min()),
        "highest_return": float(returns.max()),
        "mean_length": float(rated.lengths.mean()),
        "success_rate": rated.success_rate,
        "frames": rated.frames,
        "seconds": rated.seconds,
        "shortfall": rated.shortfall,
    }


def _show(guest: str, policies: Sequence[dict[str, Any]]) -> None:
    """Print a table of the policies that were rated; nothing without one."""
    from arkml.cli.tables import ListColumn, listing, show, tell_dropped

    rated = [one for one in policies if "error" not in one]
    if not rated:
        return
    names = [Path(one["policy"]).name for one in rated]
    if len(set(names)) < len(names):
        names = [one["policy"] for one in rated]
    columns = [
        ListColumn("policy", least=20),
        ListColumn("mean return"),
        ListColumn("success", 1, is_number=True),
        ListColumn("deviation", 3, is_number=True),
        ListColumn("lowest", 4, is_number=True),
        ListColumn("highest", 5, is_number=True),
        ListColumn("steps", 2, is_number=True),
        ListColumn("episodes", 6, is_number=True),
        ListColumn("in", 7),
    ]
    table, dropped = listing(columns, map(_row, names, rated))
    show(f"{guest}: evaluation", table)
    tell_dropped(dropped)


def _row(name: str, one: dict[str, Any]) -> list[str]:
    from arkml.cli.units import duration

    error, rate = one["standard_error"], one["success_rate"]
    deviation = one["standard_deviation"]
    return [
        name,
        f"{one['mean_return']:,.5g}" + ("" if error is None else f" ± {error:.2g}"),
        "" if rate is None else f"{rate:.1%}",
        "-" if deviation is None else f"{deviation:,.4g}",
        f"{one['lowest_return']:,.4g}",
        f"{one['highest_return']:,.4g}",
        f"{one['mean_length']:,.4g}",
        f"{one['episodes']:,}",
        duration(one["seconds"]),
    ]
