"""Table of module `env`, which compilers other than Rust's import on their own."""

from __future__ import annotations

from arkml.abi.schema import F64, U32, Api, Function, Outcome, Param

_TEXT = Param("text_ptr", U32)


def _line(name: str, doc: str, *params: Param) -> Function:
    """Return a function that writes a line to the log."""
    return Function(name, doc, params or (_TEXT,), outcome=Outcome.NONE, leaves_nothing=True)


def _number(name: str, doc: str) -> Function:
    """Return a function that takes nothing and returns a number."""
    return Function(name, doc, returns=F64, outcome=Outcome.VALUE, leaves_nothing=True)


ENV = Api(
    module="env",
    prefix="",
    doc="Imports that the compilers of AssemblyScript and Emscripten add on their own. Texts of "
    "AssemblyScript are null or the address of a string: UTF-16, with the byte length four bytes "
    "before the text.",
    functions=(
        Function(
            "abort",
            "Report a failed assertion and trap.",
            (
                Param("message_ptr", U32),
                Param("file_ptr", U32),
                Param("line", U32),
                Param("column", U32),
            ),
            outcome=Outcome.NEVER,
        ),
        Function(
            "process.exit",
            "Report that the guest exits with a status and trap.",
            (Param("status", U32),),
            outcome=Outcome.NEVER,
        ),
        _number("seed", "Return a seed of `Math.random`, by that of the host or environment."),
        _number("Math.random", "Return a number from 0 up to 1, by the same seed."),
        _number("Date.now", "Return the time in milliseconds since the Unix epoch."),
        _number("performance.now", "Return the reading of a clock in milliseconds."),
        _line(
            "trace",
            "Log a message with the first of five numbers.",
            _TEXT,
            Param("count", U32),
            *(Param(f"number_{index}", F64) for index in range(5)),
        ),
        _line("console.log", "Log a text at level info."),
        _line("console.info", "Log a text at level info."),
        _line("console.debug", "Log a text at level debug."),
        _line("console.warn", "Log a text at level warning."),
        _line("console.error", "Log a text at level error."),
        _line(
            "console.assert",
            "Log a text at level error if the condition is 0.",
            Param("condition", U32),
            _TEXT,
        ),
        _line("console.time", "Start the timer of this name."),
        _line("console.timeLog", "Log the milliseconds since the timer of this name was started."),
        _line("console.timeEnd", "Log the same and forget the timer."),
        Function(
            "emscripten_notify_memory_growth",
            "Take note that a memory has grown. The host needs none.",
            (Param("memory", U32),),
            outcome=Outcome.NONE,
            leaves_nothing=True,
        ),
    ),
)
