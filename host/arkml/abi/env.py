"""Table of module `env`, which compilers other than Rust's import on their own."""

from __future__ import annotations

from arkml.abi.schema import U32, Api, Function, Outcome, Param

ENV = Api(
    module="env",
    prefix="",
    doc="Imports that the AssemblyScript compiler adds on its own.",
    functions=(
        Function(
            "abort",
            "Report a failed assertion and trap. The first two arguments are null or point to "
            "AssemblyScript strings: UTF-16, with the byte length four bytes before the text.",
            (
                Param("message_ptr", U32),
                Param("file_ptr", U32),
                Param("line", U32),
                Param("column", U32),
            ),
            outcome=Outcome.NEVER,
        ),
    ),
)
