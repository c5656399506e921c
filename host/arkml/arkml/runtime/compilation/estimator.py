"""
The program of a process that estimates the cost of compiling one module.

The module comes by standard input; standard output gets an answer in the format of `compiler`,
which is empty for a module that may be compiled.
"""

from __future__ import annotations

import os
import sys


def main(roots: str, seconds: str, size: str, packages: str) -> None:
    """
    Check the wasm module on standard input, and write the answer to standard output.

    `roots` are the directories of this package, `packages` the directories of its requirements.
    """
    sys.path[:] = [
        *sys.path[1:],
        *roots.split(os.pathsep),
        packages,
    ]  # the first is the folder of this file
    from arkml.errors import ModuleError, ModuleTooComplex
    from arkml.runtime.compilation.compiler import COMPILED, REFUSED, TOO_COMPLEX, answer, limit
    from arkml.runtime.module.complexity import check
    from arkml.runtime.module.parsing import parse

    limit(int(seconds), int(size))
    try:
        check(parse(sys.stdin.buffer.read()))
    except ModuleTooComplex as error:
        answer(TOO_COMPLEX, str(error).encode())
    except ModuleError as error:
        answer(REFUSED, str(error).encode())
    else:
        answer(COMPILED, b"")
    os._exit(0)  # freeing everything first takes longer


if __name__ == "__main__":
    main(*sys.argv[1:])
