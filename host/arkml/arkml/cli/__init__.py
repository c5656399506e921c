"""The command line."""

from __future__ import annotations

import signal

from arkml.base.ending import leaving_at_the_end


def main() -> None:
    """Run the command that `sys.argv` names and end the process with its exit code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Until the command has handlers of its own: Ctrl-C would show a traceback of imports.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    with leaving_at_the_end():
        from arkml.cli.application import run_command_line

        run_command_line()
