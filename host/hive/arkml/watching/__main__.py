"""
The watching program: reads a job on standard input, plays its policy, and writes lines of output.
"""

from __future__ import annotations

import logging
import os
import sys
from threading import Thread
from typing import IO

from arkml.base.processors import come_after_parent
from arkml.errors import ArkmlError
from arkml.hive.protocol.watch_messages import PlayerJob, WatchLineKind
from arkml.hive.protocol.wire import WireStruct
from arkml.limits import GIB
from arkml.watching.player import WatchedGuest, ending_of, record

_STEPS = 10  # of niceness: frames of a training, learners and the hive go first (decision 9)
_MOST_BYTES = 3 * GIB
"""Bytes of data of this process, which keep a model or a guest from taking all memory."""


def main() -> int:
    """
    Do the `PlayerJob` on standard input, and return the exit status.

    The process ends at the end of its standard input.
    """
    come_after_parent(_STEPS)
    logging.disable()  # a guest may log as much as it likes
    lines = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing else writes between the lines

    def say(kind: WatchLineKind, content: WireStruct) -> int:
        line = b"%s %s\n" % (kind.encode(), content.as_bytes())
        lines.write(line)
        lines.flush()
        return len(line)

    source = sys.stdin.buffer
    job = PlayerJob.from_bytes(source.readline())
    module, policy = source.read(job.module_bytes), source.read(job.policy_bytes)
    others = {name: source.read(one.policy_bytes) for name, one in job.others.items()}
    Thread(target=_end_with, args=(source,), daemon=True).start()
    _limit_memory()
    try:
        if job.records:
            say("recorded", record(job, module, policy, others))
        else:
            WatchedGuest(job, module, policy, others, say).play()
    except (ArkmlError, OSError, MemoryError) as error:  # a bug ends with a status instead
        say("ended", ending_of(error))
        return 1
    return 0


def _end_with(source: IO[bytes]) -> None:
    """End this process at the end of its input, also while a guest is in a call."""
    source.read()
    os._exit(0)


def _limit_memory() -> None:
    if sys.platform == "win32":
        return
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = _MOST_BYTES if hard == resource.RLIM_INFINITY else min(_MOST_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


if __name__ == "__main__":
    sys.exit(main())
