"""A disk that is full for one process: it may write no file beyond a size."""

import resource

from tests.waiting import eventually


def no_room(pid, size=1 << 12):
    """Let a process write no file beyond a size. What its limits were."""
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, before[1]))
    return before


def make_room(pid, before):
    resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


def refuses(data, times):
    """Whether the hive in a directory refuses so much for want of room in time."""
    log = data / "hive.log"
    return eventually(lambda: log.read_text().count("the disk is full") >= times, 30)
