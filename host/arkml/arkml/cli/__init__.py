"""The command line."""

from __future__ import annotations


def main() -> None:
    """Run the command that `sys.argv` names and end the process with its exit code."""
    from arkml.cli.application import run_command_line

    run_command_line()
