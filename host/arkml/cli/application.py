"""The command line `arkml`: its commands, its usage errors, its version."""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated

import typer

from arkml.cli import (
    bench,
    describe,
    hive,
    inspect_command,
    mlagents_player,
    pack,
    record_command,
    report_command,
    smoke,
    sweep,
    train_command,
    trials,
)
from arkml.cli import run as run_module
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
run_module.register(app)
train_command.register(app)
sweep.register(app)
record_command.register(app)
hive.register(app)
report_command.register(app)
trials.register(app)
mlagents_player.register(app)
smoke.register(app)
inspect_command.register(app)
describe.register(app)
pack.register(app)
bench.register(app)


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


@app.callback()
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
        outcome = app(
            args=train_command.with_page_port(words), prog_name="arkml", standalone_mode=False
        )
    except _Misuse as error:
        raise UsageError(_usage(error)) from None
    except typer.Abort:
        raise KeyboardInterrupt from None
    return outcome() if callable(outcome) else outcome or GOOD


def _usage(error: Exception) -> str:
    """Return the message of a usage error, with the command whose help explains it."""
    message = getattr(error, "format_message", error.__str__)()
    context = getattr(error, "ctx", None)
    path = getattr(context, "command_path", "arkml")
    return f"{' '.join(message.split())} (see `{path} --help`)"
