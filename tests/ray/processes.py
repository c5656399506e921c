"""Processes below another one, and where they listen."""

import contextlib
from pathlib import Path

PROC = Path("/proc")
LISTENING = "0A"


def below(pid):
    """The ids of all processes that descend from one."""
    children = {}
    for stat in PROC.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found, left = [], [pid]
    while left:
        left += (more := children.get(left.pop(), []))
        found += more
    return found


def command(pid):
    with contextlib.suppress(OSError):
        return (PROC / str(pid) / "cmdline").read_text().replace("\0", " ")
    return ""


def addresses(pids):
    """The addresses, in hexadecimal as in /proc/net/tcp, where processes listen."""
    inodes = set()
    for pid in pids:
        for link in (PROC / str(pid) / "fd").glob("*"):
            with contextlib.suppress(OSError):
                inodes.add(str(link.readlink()).removeprefix("socket:[").removesuffix("]"))
    rows = [
        row.split()
        for table in ("tcp", "tcp6")
        for row in (PROC / "net" / table).read_text().splitlines()[1:]
    ]
    return {row[1].split(":")[0] for row in rows if row[3] == LISTENING and row[9] in inodes}
