"""How a command ends: its exit code, and its one sentence when it failed."""

from __future__ import annotations

import errno
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from arkml.cli.output import StdoutUnwritable
from arkml.cli.signals import SIGNALS
from arkml.errors import ArkmlError, CmdletFailed, GuestError, GuestExit

GOOD, FAILED, UNUSABLE, UNREAD = 0, 1, 2, 141

Job = Callable[[], int]
"""What a command does once its options are understood; it returns the exit code."""


_OF_THE_SYSTEM = frozenset(
    {
        errno.EACCES, errno.EDQUOT, errno.EEXIST, errno.EFBIG, errno.EIO, errno.EISDIR,
        errno.EMFILE, errno.ENAMETOOLONG, errno.ENFILE, errno.ENOENT, errno.ENOSPC,
        errno.ENOTDIR, errno.EPERM, errno.EROFS,
    }
)  # fmt: skip
"""What the files of a user, and their disk, may answer."""


def exit_code(error: BaseException) -> int:
    """A guest that failed is 1, what never came to run 2. A bug of the host is 1 too."""
    if _is_of_the_system(error):
        return UNUSABLE
    if isinstance(error, GuestError) or not isinstance(error, ArkmlError):
        return FAILED
    return UNUSABLE


def run(job: Job, *, as_json: bool, debug: bool) -> NoReturn:
    """Do the job and end the process; SIGTERM and SIGHUP interrupt it as Ctrl-C does."""
    SIGNALS.catch(leave)
    try:
        status = _done(job, as_json=as_json, debug=debug)
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit):  # SystemExit is how click and rich tell of a broken pipe
        leave(SIGNALS.ended(UNREAD))  # whoever read the output has seen enough
    except StdoutUnwritable as error:
        print_error(f"stdout cannot be written: {error.strerror}")
        leave(SIGNALS.ended(FAILED))
    if status == SIGNALS.status:
        leave(status)  # what is still under way is not waited for
    sys.exit(status)


def _done(job: Job, *, as_json: bool, debug: bool) -> int:
    """Do the job, tell what went wrong, and return the exit code."""
    try:
        return job()
    except KeyboardInterrupt as interrupt:
        text = f"interrupted {interrupt}".rstrip()
        sys.stderr.write(f"{text}\n")
        if as_json:
            print_json({"error": text, "type": "KeyboardInterrupt"})
        return SIGNALS.status
    except (BrokenPipeError, StdoutUnwritable):
        raise
    except Exception as error:  # noqa: BLE001  a bug of the host, too, is told in a sentence
        if debug:
            traceback.print_exc()
        say_failure(sentence(error, debug=debug), error, as_json=as_json)
        return exit_code(error)


def sentence(error: Exception, *, debug: bool = False) -> str:
    """What to tell the user of `error`."""
    if isinstance(error, ArkmlError):
        return str(error)
    if _is_of_the_system(error):
        assert isinstance(error, OSError)
        return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
    hint = "" if debug else " (--debug shows where)"
    return f"a bug of the host: {type(error).__name__}: {error}{hint}"


def _is_of_the_system(error: BaseException) -> bool:
    """Whether a file could not be had, for a reason that lies in the file or its disk."""
    return isinstance(error, OSError) and error.errno in _OF_THE_SYSTEM


def say_failure(text: str, error: Exception, *, as_json: bool) -> None:
    """Put the sentence where the user looks for it."""
    from arkml.terminal import harmless

    print_error(harmless(text))
    if not as_json:
        return
    document: dict[str, Any] = {"error": text, "type": type(error).__name__}
    if isinstance(error, CmdletFailed | GuestExit):
        document["status"] = error.status
    print_json(document)


def print_error(text: str) -> None:
    """Write one line, or a few that belong together, to stderr."""
    color = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    mark = "\x1b[1;31merror:\x1b[0m" if color else "error:"
    sys.stderr.write(f"{mark} {text}\n")
    sys.stderr.flush()


def print_json(document: dict[str, Any]) -> None:
    """Write the one JSON object of a `--json` run."""
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False) + "\n")
    sys.stdout.flush()


def leave(status: int) -> NoReturn:
    """End the process at once, without what Python does at its end."""
    for stream in filter(None, (sys.stdout, sys.stderr)):  # None is closed from the start
        try:
            stream.flush()
        except OSError:  # nobody reads it any more
            continue
    os._exit(status)
