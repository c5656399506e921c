"""Replays: documents with all that pages show of what a guest did, and those that a run keeps."""

from __future__ import annotations

import binascii
import gzip
import zlib
from base64 import b64decode, b64encode
from typing import Annotated, Literal

from msgspec import Meta, field
from msgspec.structs import replace

from arkml.errors import ProtocolError
from arkml.hive.protocol.parts import MOST_FEATURES, Kind
from arkml.hive.protocol.shown_games import ShownGame
from arkml.hive.protocol.wire import Count, PolicyVersion, WireStruct

MAX_REPLAY_BYTES = 16 << 20
"""Bytes of a document as JSON."""

MAX_PACKED_REPLAY_BYTES = 4 << 20
"""Bytes of a packed document."""

MAX_SHOWN_FRAMES = 4_000

ReplayKind = Literal["best", "worst", "latest", "recorded"]
"""
Replays that a run keeps: of the highest and the lowest score so far, the newest, and recordings.
"""

_LEVEL = 6  # of compression
_GZIP = 16 + zlib.MAX_WBITS
ShownNumber = float | Literal["NaN", "Infinity", "-Infinity"]
"""A number; JSON has no others than finite ones."""

_Text = Annotated[str, Meta(max_length=20_000)]
_BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_Pixels = Annotated[str, Meta(max_length=-(-MOST_FEATURES // 3) * 4, pattern=_BASE64)]
_Small = Annotated[int, Meta(ge=0, lt=1 << 16)]


class ShownPart(WireStruct, frozen=True):
    """
    Consecutive features that form one part of an observation.

    `low` and `high` have a bound for each feature, in C order of `shape`, or one for all of them;
    None where there is none.
    `kind` and `categories` are those of `Part`; the number of entities that are there is a part of
    its own, right before them.
    """

    name: _Text
    shape: list[Count]
    low: list[float | None]
    high: list[float | None]
    kind: Kind = "vector"
    categories: Count = 0


class ShownBehavior(WireStruct, frozen=True):
    """
    The meaning of the rows of one kind, as the trial page has it of a class of actors.

    Attributes:
        name: Its declared name, empty if it has none.
        observations: The parts of an observation, which cover all features in order.
        low: Lower bound of each continuous action, None without one.
        high: Upper bound likewise.
        branches: Number of choices of each of the last actions, which are discrete.
        positions: Indices of two features that are coordinates in a plane; empty without any.
        game: What is declared of the game that they play, None for nothing.
        names: What people call each action, continuous ones first; empty if that is not declared.
        choices: What people call each choice, of all branches one after another; empty likewise.

    """

    name: _Text
    observations: list[ShownPart]
    low: list[float | None]
    high: list[float | None]
    branches: list[Count]
    positions: Annotated[list[Count], Meta(max_length=2)]
    game: ShownGame | None = None
    names: list[_Text] = field(default_factory=list)
    choices: list[_Text] = field(default_factory=list)


class ShownSubmit(WireStruct, frozen=True):
    """
    A submit and its answer. Each list has an item for each row that is shown.

    Attributes:
        behavior: The index of the meaning of its rows.
        session: Number of its session, from 0 in the order of first submits.
        training: True for a session of a training.
        code: The code that the guest got, 0 for success; None if the trace has no answer.
        rows: Number of rows, of which the first are shown.
        agents: The id of each agent, which may have 64 bits, as text.
        states: The state of the episode of each agent.
        rewards: Rewards.
        returns: Sums of the rewards of each agent's episode so far.
        observations: The features of each row, without those of images.
        actions: The actions of each row, as the policy gave them; empty if it was refused.
        values: The values that the policy gave; empty if it gave none but zeros.
        images: The images of each row, in the order of its parts: their values, rounded to bytes,
            as base64. Empty if its rows have none.

    """

    behavior: _Small
    session: Count
    training: bool
    code: _Small | None
    rows: Count
    agents: list[_Text]
    states: list[Literal["running", "terminal", "interrupted", "initial"]]
    rewards: list[ShownNumber]
    returns: list[ShownNumber]
    observations: list[list[ShownNumber]]
    actions: list[list[ShownNumber]]
    values: list[ShownNumber]
    images: list[list[_Pixels]] = field(default_factory=list)

    def first(self, count: int) -> ShownSubmit:
        """Return it with the first `count` rows of those that are shown."""
        shorter = {
            name: value[:count]
            for name in self.__struct_fields__
            if isinstance(value := getattr(self, name), list)
        }
        return replace(self, **shorter)


class ShownFrame(WireStruct, frozen=True):
    """
    A frame: the call of an export, with its arguments and its result as one text.

    `stopped` is a sentence on a call that was not played to its end, or empty.
    """

    frame: Count
    call: _Text
    submits: list[ShownSubmit]
    stopped: _Text = ""


class ShownLine(WireStruct, frozen=True):
    """A line of the log, or of output, whose `level` is "output"."""

    frame: Count
    level: Literal["error", "warning", "info", "debug", "trace", "output"]
    text: _Text


class ShownMark(WireStruct, frozen=True):
    """A frame to which one may want to jump, with a sentence about it."""

    frame: Count
    kind: Literal["differs", "failed", "stopped", "chosen", "episode"]
    text: _Text


class ShownCall(WireStruct, frozen=True):
    """A frame of a backtrace; `places` are source files with lines, innermost first."""

    function: _Text
    module: _Text
    offset: Count | None
    places: list[_Text]


class ShownMemory(WireStruct, frozen=True):
    """Bytes of a guest's memory from `start` on, in hexadecimal, around the address of a fault."""

    start: Count
    fault: Count
    data: _Text


class ShownFailure(WireStruct, frozen=True):
    """
    The failure of a guest.

    `kind` is the class of its error. `calls` is the backtrace, innermost first.
    """

    kind: _Text
    text: _Text
    calls: list[ShownCall]
    memory: ShownMemory | None = None


class ReplayDocument(WireStruct, frozen=True):
    """
    All that a page shows of a replay.

    Attributes:
        guest: Name of the guest.
        release: The release of arkml that recorded it.
        recorded_at: Nanoseconds since the Unix epoch.
        first: The number of the first frame of the trace that can be played.
        last: The number of the last frame of the trace.
        every: Every n-th frame is shown, and those of `marks`.
        behaviors: The meanings of rows.
        frames: The frames that are shown, in order.
        lines: Lines of the log and of output, in order; the last ones of many.
        marks: Frames to jump to, in order.
        opens_at: The number of the frame that is shown first.
        notes: Sentences on what was left out, and on a trace that has no proper end.
        failure: The failure of the guest, None without one.

    """

    guest: _Text
    release: _Text
    recorded_at: int
    first: Count
    last: Count
    every: Annotated[int, Meta(ge=1)]
    behaviors: list[ShownBehavior]
    frames: Annotated[list[ShownFrame], Meta(max_length=MAX_SHOWN_FRAMES)]
    lines: list[ShownLine]
    marks: list[ShownMark]
    opens_at: Count
    notes: list[_Text]
    failure: ShownFailure | None = None

    def pack(self) -> bytes:
        """Return it as JSON, packed by gzip."""
        return gzip.compress(self.as_bytes(), _LEVEL, mtime=0)

    @classmethod
    def unpack(cls, packed: bytes) -> ReplayDocument:
        """Return the document in packed bytes, from a peer. Raises ProtocolError."""
        if len(packed) > MAX_PACKED_REPLAY_BYTES:
            raise ProtocolError(
                f"a replay of {len(packed):,} bytes: {MAX_PACKED_REPLAY_BYTES:,} at most"
            )
        unzip = zlib.decompressobj(_GZIP)
        try:
            data = unzip.decompress(packed, MAX_REPLAY_BYTES)
        except zlib.error as error:
            raise ProtocolError(f"a replay that gzip cannot unpack: {error}") from None
        if not unzip.eof or unzip.unused_data:
            raise ProtocolError(
                f"a replay that is cut, or unpacks to more than {MAX_REPLAY_BYTES:,} bytes"
            )
        return cls.from_bytes(data)


class ReplayReport(WireStruct, frozen=True):
    """
    The replay of an episode that a policy version has played in an evaluation.

    Attributes:
        version: The policy version.
        score: The return of the episode.
        document: The packed document, as base64; see `ReplayDocument`.

    """

    version: PolicyVersion
    score: float
    document: str

    @classmethod
    def of(cls, version: int, score: float, document: ReplayDocument) -> ReplayReport:
        """Return the report of a document."""
        return cls(version, score, b64encode(document.pack()).decode())

    def packed(self) -> bytes:
        """Return the packed document, which may be anything. Raises ProtocolError."""
        try:
            return b64decode(self.document, validate=True)
        except (binascii.Error, ValueError) as error:
            raise ProtocolError(f"the document of a replay is not base64: {error}") from None


class KeptReplay(WireStruct, frozen=True):
    """A replay that a run keeps; `at` is the time of its report, in nanoseconds of Unix."""

    kind: ReplayKind
    version: PolicyVersion
    score: float
    at: Count


class ReplayList(WireStruct, frozen=True):
    """The replays that a run keeps: at most one of each kind, but several are recorded."""

    replays: list[KeptReplay]


class ReplayQuery(WireStruct, frozen=True):
    """Parameters of a replay: the one to fetch; a recorded one has a `version`."""

    which: ReplayKind = "latest"
    version: PolicyVersion | None = None
