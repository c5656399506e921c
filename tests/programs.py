"""Programs in Python that tests write and have others start, by this interpreter."""

import sys

# A shell starts the interpreter, for the kernel ends a path in the first line at its first blank.
# What the shell runs is a string to Python.
_START = """#!/bin/sh
'''exec' "{}" "$0" "$@"
' '''
"""


def program_text(source):
    """
    Return a file that runs a script of Python when it is executed, wherever Python is.

    The script begins with none of the imports from __future__, which stand before every statement.
    """
    return _START.format(sys.executable) + source


def write_program(path, source):
    """Write such a file, which may be executed. Return its path."""
    path.write_text(program_text(source))
    path.chmod(0o755)
    return path
