"""The application of the command `arkml`: its subcommands, its usage errors, its version."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from itertools import pairwise
from typing import Annotated

import typer

from arkml.cli.exits import GOOD, run
from arkml.cli.options import epilog
from arkml.cli.output import open_streams
from arkml.errors import UsageError

# Typer brings its own click, older ones used the separate one: this is the class of either.
_Misuse: type[Exception] = typer.BadParameter.__mro__[2]

_EPILOG = epilog(
    "arkml new npc --language c",
    "arkml run npc.wasm --policy walk.onnx",
    "arkml train npc.wasm --minutes 5",
    "arkml smoke build/*.wasm",
    "arkml describe walk.onnx",
    notes="""
**Exit codes**: 0 good; 1 the guest failed; 2 bad usage, or a file that cannot be loaded, linked
(1 under smoke) or written; 129, 130 and 143 after SIGHUP, Ctrl-C and SIGTERM. Logs go to stderr.
""",
)

_OUTPUTS = ("--data", "--out", "--output", "-o")

COMMANDS = "arkml.commands"
"""
The group of entry points with which other packages add commands.

An entry point has the name of its command, and a function that takes the typer.Typer to add it to.
"""

# The module of each command, which is imported for that command and for the help of all.
_COMMANDS = {
    "new": "new_command",
    "run": "run_command",
    "train": "train_command",
    "sweep": "sweep_command",
    "evaluate": "evaluate_command",
    "record": "record_command",
    "publish": "publish_command",
    "replay": "replay_command",
    "state": "state_command",
    "smoke": "smoke",
    "inspect": "inspect_command",
    "describe": "describe_command",
    "pack": "pack",
    "bench": "bench",
    "sdk": "sdk_command",
}

_EXTRAS = {"hive": "hive", "report": "hive", "trials": "trials", "player": "unity"}
"""The extra that installs the package of a command."""

_INTERRUPTED = 130
"""The exit code that typer returns if Ctrl-C comes while it reads the words."""


def application(words: Sequence[str] = ()) -> typer.Typer:
    """Return the application with the command that `words` begin with, or with all commands."""
    app = typer.Typer(
        name="arkml",
        help="Run WebAssembly guests that act with trained policies, and train them.",
        epilog=_EPILOG,
        add_completion=False,
        no_args_is_help=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_main)
    for register in _registrars(words[0] if words else ""):
        register(app)
    return app


def _registrars(wanted: str) -> list[Callable[[typer.Typer], None]]:
    """Return the functions that add the wanted command, or all commands if none has that name."""
    if wanted in _COMMANDS:
        return [_own(wanted)]
    others = {point.name: point for point in entry_points(group=COMMANDS)}  # takes 20 ms
    if wanted in others:
        return [_load(others[wanted])]
    if wanted in _EXTRAS:
        raise UsageError(f"{wanted} is a command of arkml[{_EXTRAS[wanted]}]: install that")
    return [*map(_own, _COMMANDS), *(_load(others[name]) for name in sorted(others))]


def _own(name: str) -> Callable[[typer.Typer], None]:
    register: Callable[[typer.Typer], None] = import_module(f"arkml.cli.{_COMMANDS[name]}").register
    return register


def _load(point: EntryPoint) -> Callable[[typer.Typer], None]:
    try:
        register: Callable[[typer.Typer], None] = point.load()
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"the command {point.name} cannot be imported from {point.value}: {error}"
        ) from error
    return register


def _print_version(wanted: bool) -> None:
    if not wanted:
        return
    from importlib.metadata import PackageNotFoundError, version

    versions = {}
    for package in ("arkml", "wasmtime", "onnxruntime"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "(not installed)"
    others = f"wasmtime {versions['wasmtime']}, onnxruntime {versions['onnxruntime']}"
    sys.stdout.write(f"arkml {versions['arkml']} ({others})\n")
    from arkml.runtime import native

    if native.MISSING:
        sys.stdout.write(f"guests run on one thread, in Python: {native.MISSING}\n")
    raise typer.Exit(GOOD)


def _main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    del version  # its callback has printed it


def run_command_line() -> None:
    """Parse the arguments of the process, run the command and end the process."""
    words = sys.argv[1:] or ["--help"]
    run(partial(_dispatch, words), as_json="--json" in words, debug="--debug" in words)


def _dispatch(words: list[str]) -> int:
    open_streams()
    try:
        _require_outputs(words)
        words = _with_page_port(words)
        outcome = application(words)(args=words, prog_name="arkml", standalone_mode=False)
    except _Misuse as error:
        raise UsageError(_usage(error)) from None
    except typer.Abort:
        raise KeyboardInterrupt from None
    if outcome == _INTERRUPTED:  # by any signal, which typer takes for Ctrl-C
        raise KeyboardInterrupt
    return outcome() if callable(outcome) else outcome or GOOD


def _with_page_port(words: list[str]) -> list[str]:
    """Return words with `--page=0` where `train` is given a bare `--page`: options take a value."""
    if words[:1] != ["train"]:
        return words
    return ["--page=0" if word == "--page" else word for word in words]


def _require_outputs(words: list[str]) -> None:
    """Raise UsageError for an empty name to write to, which as a path is the current directory."""
    given = [*pairwise(words), *((word[:-1], "") for word in words if word.endswith("="))]
    for option, value in given:
        if option in _OUTPUTS and not value:
            raise UsageError(f"{option} is empty: name a file or a directory")


def _usage(error: Exception) -> str:
    """Return the message of a usage error, with the command whose help explains it."""
    message = getattr(error, "format_message", error.__str__)() or "Missing command."
    context = getattr(error, "ctx", None)
    path = getattr(context, "command_path", "arkml")
    return f"{' '.join(message.split())} (see `{path} --help`)"
