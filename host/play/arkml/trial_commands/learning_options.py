"""Options of learning from trials of a guest: the hive, its runs, the actions to learn from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from arkml.cli.launch import read_token
from arkml.cli.values import one_of
from arkml.errors import UsageError

if TYPE_CHECKING:
    from arkml.guest_trials.learning.run_options import LearningOptions

_PANEL = "Learning"
_LEARNED, _REWARDS = ("people", "all"), ("guest", "aggregated")


TrialsHive: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--hive",
        metavar="HOST:PORT|URL",
        help="Take part in runs of that hive; its token is in the environment variable"
        " ARKML_HIVE_TOKEN.",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]
TrialsRuns: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--run",
        metavar="CLASS=NAME",
        help="The run of a class, whose policy versions stand in for its players; a run that the"
        " hive does not have is started (any number of times).",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]
Learn: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="people|all",
        parser=one_of("--learn", _LEARNED),
        help="Learn from what players do, as demonstrations; or from what the policies do, too.",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]
LearnRewards: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="guest|aggregated",
        parser=one_of("--learn-rewards", _REWARDS),
        help="Learn with the guest's own rewards, or with those of all senders together.",
        show_default="guest",
        rich_help_panel=_PANEL,
    ),
]


def read_runs(runs: Sequence[str]) -> dict[str, str]:
    """Return names of runs by actor class, given texts CLASS=NAME. Raises UsageError."""
    by_class: dict[str, str] = {}
    for text in runs:
        actor_class, equals, name = text.partition("=")
        if not (equals and actor_class and name):
            raise UsageError(f"--run {text}: it takes CLASS=NAME")
        if actor_class in by_class:
            raise UsageError(f"--run {text}: class {actor_class!r} has a run already")
        by_class[actor_class] = name
    return by_class


def learning_options(
    hive: str | None, runs: Sequence[str] | None, learn: str | None, rewards: str | None
) -> LearningOptions | None:
    """
    Return the options of learning from the trials of a guest, None without a hive.

    Args:
        hive: "HOST:PORT" or a URL.
        runs: The runs of classes, for example "walker=walk".
        learn: Whose actions are learned from: "people" or "all".
        rewards: The rewards to learn from: "guest" or "aggregated".

    Raises:
        UsageError: The options contradict each other.

    """
    if hive is None:
        for option, given in (("--run", runs), ("--learn", learn), ("--learn-rewards", rewards)):
            if given:
                raise UsageError(f"{option} is about the run of a hive: it takes --hive HOST:PORT")
        return None
    if not runs:
        raise UsageError("--hive takes the run of a class, too: --run CLASS=NAME")
    if rewards is not None and learn is None:
        raise UsageError("--learn-rewards says how --learn learns: it takes --learn people or all")
    from arkml.guest_trials.learning.run_options import LearningOptions

    learned: Any = learn or ""
    rewarded: Any = rewards or "guest"
    return LearningOptions(
        hive=hive,
        token=read_token(),
        runs=read_runs(runs),
        learn=learned,
        rewards=rewarded,
    )
