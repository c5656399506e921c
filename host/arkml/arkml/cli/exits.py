"""The end of a command: its exit code, and one sentence where it failed."""

from __future__ import annotations

import errno
import json
import math
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from arkml.base.ending import leave
from arkml.cli.output import StdoutClosed, StdoutUnwritable
from arkml.cli.signals import SIGNALS
from arkml.errors import ArkmlError, CmdletFailed, GuestError, GuestExit

GOOD, FAILED, UNUSABLE, UNREAD = 0, 1, 2, 141

Job = Callable[[], int]
"""The work of a command after its options are parsed; it returns the exit code."""


_OF_THE_SYSTEM = frozenset(
    {
        errno.EACCES, errno.EDQUOT, errno.EEXIST, errno.EFBIG, errno.EIO, errno.EISDIR,
        errno.EMFILE, errno.ENAMETOOLONG, errno.ENFILE, errno.ENOENT, errno.ENOSPC,
        errno.ENOTDIR, errno.EPERM, errno.EROFS,
    }
)  # fmt: skip
"""Error numbers that are due to the user's files or disk, such as ENOSPC."""


def exit_code(error: BaseException) -> int:
    """
    Return the exit code for an error.

    It is 1 for a failed guest or a bug of the host, and 2 if no guest ran, for example after bad
    usage.
    """
    if _is_of_the_system(error):
        return UNUSABLE
    if isinstance(error, GuestError) or not isinstance(error, ArkmlError):
        return FAILED
    return UNUSABLE


def run(job: Job, *, as_json: bool, debug: bool) -> NoReturn:
    """Run a command's job and end the process; SIGTERM and SIGHUP interrupt it as Ctrl-C does."""
    SIGNALS.catch(leave)
    try:
        status = _run(job, as_json=as_json, debug=debug)
        sys.stdout.flush()
    except (StdoutClosed, SystemExit):  # click and rich raise SystemExit for a broken pipe
        leave(SIGNALS.ended(UNREAD))  # the reader of the output has closed it
    except StdoutUnwritable as error:
        print_error(f"stdout cannot be written: {error.strerror}")
        leave(SIGNALS.ended(FAILED))
    if status == SIGNALS.status:
        leave(status)  # without waiting for threads
    sys.exit(status)


def _run(job: Job, *, as_json: bool, debug: bool) -> int:
    """Run a job, show its error, and return the exit code."""
    try:
        return job()
    except KeyboardInterrupt as interrupt:
        text = f"interrupted {interrupt}".rstrip()
        sys.stderr.write(f"{text}\n")
        if as_json:
            print_json({"error": text, "type": "KeyboardInterrupt"})
        return SIGNALS.status
    except (StdoutClosed, StdoutUnwritable):
        raise
    except Exception as error:  # noqa: BLE001  a bug of the host is shown as a sentence too
        if debug:
            traceback.print_exc()
        print_failure(sentence(error, debug=debug), error, as_json=as_json)
        return exit_code(error)


def sentence(error: Exception, *, debug: bool = False) -> str:
    """Return the sentence that explains `error` to the user."""
    if isinstance(error, ArkmlError):
        return str(error)
    if _is_of_the_system(error):
        assert isinstance(error, OSError)
        return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
    hint = "" if debug else " (--debug shows where)"
    return f"a bug of the host: {type(error).__name__}: {error}{hint}"


def _is_of_the_system(error: BaseException) -> bool:
    """Return whether a file or its disk is the reason of an error, for example a full disk."""
    return isinstance(error, OSError) and error.errno in _OF_THE_SYSTEM


def print_failure(text: str, error: Exception, *, as_json: bool) -> None:
    """Write a failure to stderr, and with `as_json` to stdout as an object."""
    from arkml.base.terminal import harmless

    print_error(harmless(text))
    if not as_json:
        return
    document: dict[str, Any] = {"error": text, "type": type(error).__name__}
    if isinstance(error, CmdletFailed | GuestExit):
        document["status"] = error.status
    print_json(document)


def print_error(text: str) -> None:
    """Write a text of one or a few lines about an error to stderr."""
    color = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    mark = "\x1b[1;31merror:\x1b[0m" if color else "error:"
    sys.stderr.write(f"{mark} {text}\n")
    sys.stderr.flush()


def print_json(document: dict[str, Any]) -> None:
    """
    Write the one JSON object of a `--json` run.

    Numbers that are not finite, which JSON lacks, are null.
    """
    sys.stdout.write(json.dumps(_finite(document), indent=2, allow_nan=False) + "\n")
    sys.stdout.flush()


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
