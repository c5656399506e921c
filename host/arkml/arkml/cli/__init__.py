"""The command line."""

from __future__ import annotations

from arkml.base.ending import leaving_at_the_end


def main() -> None:
    """Run the command that `sys.argv` names and end the process with its exit code."""
    with leaving_at_the_end():
        from arkml.cli.application import run_command_line

        run_command_line()
