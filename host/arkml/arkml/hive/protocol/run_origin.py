"""The origin of a run, as the host that started it reports it, and the goal of its command."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from arkml.hive.protocol.wire import MAX_COUNT, Count, WireStruct

MAX_COMMAND = 4_096
"""The longest command line of an origin, in characters."""

MAX_FILE = 512
"""The longest name of a guest's file, in characters."""

MAX_WORD = 128
"""The longest version, name of a package, or description by git, in characters."""

MAX_HOST = 255
"""The longest name of a host, in characters."""

MAX_VERSIONS = 32
"""The number of packages whose versions an origin names."""

_Word = Annotated[str, Meta(max_length=MAX_WORD)]


class RunOrigin(WireStruct, frozen=True):
    """
    The origin of a run, as the host that started it reports it. Nothing of it is checked.

    Attributes:
        command: Command line that started the run, without secrets.
        host: Name of the machine.
        guest_file: File name of the guest.
        guest_sha256: SHA-256 of the guest, in hex, or empty.
        versions: Version of each package that matters, and of Python.
        git: Output of `git describe --always --dirty` in the guest's folder, empty without one.

    """

    command: Annotated[str, Meta(max_length=MAX_COMMAND)] = ""
    host: Annotated[str, Meta(max_length=MAX_HOST)] = ""
    guest_file: Annotated[str, Meta(max_length=MAX_FILE)] = ""
    guest_sha256: Annotated[str, Meta(pattern="^([0-9a-f]{64})?$", max_length=64)] = ""
    versions: Annotated[dict[_Word, _Word], Meta(max_length=MAX_VERSIONS)] = field(
        default_factory=dict
    )
    git: _Word = ""


class RunGoal(WireStruct, frozen=True):
    """
    The goal of the command that started a run, or resumed it.

    Attributes:
        seconds: Seconds for which it trains, 0 for no limit.
        frames: Number of frames for which it trains, 0 for no limit.
        mean_return: Mean return at which it ends, None for none.
        since: Its start or, in a new run, the first policy, from which hosts count the seconds, in
            nanoseconds since the Unix epoch; the hive sets this.

    """

    seconds: Annotated[float, Meta(ge=0, le=MAX_COUNT)] = 0.0
    frames: Count = 0
    mean_return: float | None = None
    since: Count = 0
