"""Messages for watching: the guest that a run keeps, its versions, and the lines of a player."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from arkml.hive.protocol.replay_messages import KeptReplay, ShownBehavior
from arkml.hive.protocol.wire import Count, PolicyVersion, WireStruct

PLAYER = "arkml.watching"
"""The program that plays a version for people who watch it, a module of Python."""

FRAME_RATE = 30
"""Frames a second of a guest that is watched."""

MOST_LINE = 8 << 20
"""Bytes of a line of a player, at most."""

MOST_OTHERS = 64
"""Other runs of a guest whose policies act where one is watched, at most."""

WatchLineKind = Literal["head", "frame", "beat", "ended", "recorded"]
"""
Lines of a player.

`head` and `ended` have a `WatchHead` and a `WatchEnd`, `frame` has a `ShownFrame`, `recorded` a
`ReplayReport`; `beat` says that the guest lives while there is no frame.
"""

_Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
_Name = Annotated[str, Meta(max_length=200)]
_Behavior = Annotated[str, Meta(max_length=512)]
_Version = Annotated[str, Meta(pattern="^(best|latest|[0-9]{1,10})$")]
_Steps = Annotated[int, Meta(ge=1, le=1 << 40)]


class GuestReport(WireStruct, frozen=True):
    """
    The guest of a run, whose module the hive has been given.

    Attributes:
        module: SHA-256 of the module, in hex.
        name: File name of the module.
        behavior: The name by which the guest starts the run.
        arguments: Arguments of a cmdlet, None for the entry point that the exports suggest.
        max_episode_steps: Steps after which an episode is cut off, None for no limit.
        others: Ids of the other runs that the guest has started, by the names that it gave them:
            their newest policies play their agents.

    """

    module: _Sha256
    name: _Name
    behavior: _Behavior
    arguments: Annotated[str, Meta(max_length=1 << 16)] | None = None
    max_episode_steps: _Steps | None = None
    others: Annotated[dict[_Behavior, str], Meta(max_length=MOST_OTHERS)] = field(
        default_factory=dict
    )


class WatchQuery(WireStruct, frozen=True):
    """
    Parameters of a watch.

    Attributes:
        version: "best", "latest", or the number of a version.
        seed: The seed of the guest; 0 begins as the evaluations of a run begin.

    """

    version: _Version = "latest"
    seed: Annotated[int, Meta(ge=0, lt=1 << 62)] = 0


class RecordingRequest(WireStruct, frozen=True):
    """A request to record an episode of a policy version, which is given as in `WatchQuery`."""

    version: _Version


class RecordingReply(WireStruct, frozen=True):
    """A recorded episode, or None while it is still played."""

    recorded: KeptReplay | None


class WatchableVersion(WireStruct, frozen=True):
    """
    A policy version that the run still keeps.

    Attributes:
        version: Its number.
        at: Time of its publication, in nanoseconds since the Unix epoch.
        mean_return: Mean return of its last evaluation, None without one.

    """

    version: PolicyVersion
    at: Count
    mean_return: float | None = None


class WatchableVersions(WireStruct, frozen=True):
    """
    The policy versions of a run that people can watch.

    Attributes:
        versions: The versions that are kept, the oldest first.
        best: The number of the best version that is kept, None before any was rated.
        latest: The number of the newest version, None before the first.
        guest: File name of the guest's module, empty if the run keeps none.
        obstacle: Why nothing can be watched, as a sentence; else empty.

    """

    versions: list[WatchableVersion]
    best: PolicyVersion | None
    latest: PolicyVersion | None
    guest: str
    obstacle: str = ""


class OtherVersion(WireStruct, frozen=True):
    """A version of another run, which plays the agents of that: its number, and its bytes."""

    version: PolicyVersion
    policy_bytes: Count


class PlayerJob(WireStruct, frozen=True, kw_only=True):
    """
    The job of a player, a process that plays a policy version.

    The job is the first line of its input, followed by the bytes of the module, the policy, and
    those of the `others`, in their order.

    Attributes:
        guest: The guest that plays.
        version: The policy version that acts.
        seed: The seed of the guest, 0 for none.
        module_bytes: Bytes of the module.
        policy_bytes: Bytes of the policy's ONNX file.
        records: True to record one episode instead of showing frames.
        others: The policies of agents of other runs, by the names of these.

    """

    guest: GuestReport
    version: PolicyVersion
    seed: Count = 0
    module_bytes: Count
    policy_bytes: Count
    records: bool = False
    others: dict[str, OtherVersion] = field(default_factory=dict)


class WatchHead(WireStruct, frozen=True):
    """
    The first event of a watch, about the frames that follow.

    Attributes:
        guest: File name of the guest's module.
        version: The policy version that acts.
        seed: The seed of the guest, 0 for none.
        rate: Frames a second, at most.
        behaviors: The meanings of rows, to which submits refer by index.
        notes: Sentences about what is not shown.

    """

    guest: str
    version: PolicyVersion
    seed: Count
    rate: Count
    behaviors: list[ShownBehavior]
    notes: list[str] = field(default_factory=list)


class WatchEnd(WireStruct, frozen=True):
    """
    The last event of a watch: why the player has ended.

    Attributes:
        reason: A sentence.
        calls: The backtrace of a guest that failed, innermost first.

    """

    reason: str
    calls: list[str] = field(default_factory=list)
