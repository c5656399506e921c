"""The command line `arkml`: its commands, its usage errors, its version."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Annotated

import typer

from arkml.cli.exits import GOOD, run
from arkml.cli.options import epilog
from arkml.cli.output import open_streams
from arkml.errors import UsageError

# Typer brings its own click, older ones used the separate one: this is the class of either.
_Misuse: type[Exception] = typer.BadParameter.__mro__[2]

_EPILOG = epilog(
    "arkml run npc.wasm --policy walk.onnx",
    "arkml train npc.wasm --minutes 5",
    "arkml smoke build/*.wasm",
    "arkml describe walk.onnx",
    notes="""
**Exit codes**: 0 good; 1 the guest failed; 2 bad usage, or a file that cannot be loaded, linked
(1 under smoke) or written; 129, 130 and 143 after SIGHUP, Ctrl-C and SIGTERM. Logs go to stderr.
""",
)

# The module of each command, which is imported for that command and for the help of all.
_COMMANDS = {
    "run": "run",
    "train": "train_command",
    "sweep": "sweep",
    "record": "record_command",
    "hive": "hive",
    "report": "report_command",
    "trials": "trials",
    "player": "mlagents_player",
    "smoke": "smoke",
    "inspect": "inspect_command",
    "describe": "describe",
    "pack": "pack",
    "bench": "bench",
}

_INTERRUPTED = 130
"""The exit code that typer returns where KeyboardInterrupt came while it read the words."""


def application(words: Sequence[str] = ()) -> typer.Typer:
    """Return the command line with the command that `words` begin with, or else with all."""
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
    wanted = _COMMANDS.get(words[0]) if words else None
    for module in _COMMANDS.values() if wanted is None else (wanted,):
        import_module(f"arkml.cli.{module}").register(app)
    return app


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
    """Return words with a port where `--page` of `train` has none: options always take a value."""
    if words[:1] != ["train"]:
        return words
    return ["--page=0" if word == "--page" else word for word in words]


def _usage(error: Exception) -> str:
    """Return the message of a usage error, with the command whose help explains it."""
    message = getattr(error, "format_message", error.__str__)() or "Missing command."
    context = getattr(error, "ctx", None)
    path = getattr(context, "command_path", "arkml")
    return f"{' '.join(message.split())} (see `{path} --help`)"
