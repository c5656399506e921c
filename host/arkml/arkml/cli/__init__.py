"""The command line."""

from __future__ import annotations

import atexit
import gc
import sys


def main() -> None:
    """Run the command that `sys.argv` names and end the process with its exit code."""
    ended: list[int] = []
    atexit.register(_leave, ended)  # first, so that it is called after all others
    from arkml.cli.application import run_command_line

    try:
        run_command_line()
    except SystemExit as end:
        if isinstance(end.code, int):
            ended.append(end.code)
        raise


def _leave(ended: list[int]) -> None:
    """
    End a process whose command has ended, after threads and all other functions of its end.

    Python would take apart every module first: a fifth of what a short command takes.
    """
    if not ended:
        return
    from arkml.cli.exits import leave

    if sys.warnoptions:
        gc.collect()  # whoever wants warnings hears of what was left unclosed
    leave(ended[0])
