"""Replays for pages: documents that show the frames, rows and log lines of a played guest."""

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
    Consecutive features that form one part of an observation, as a page shows them.

    The number of entities is a part of its own, right before the entities.

    Attributes:
        name: Name of the part.
        shape: Its shape.
        low: The lower bound of each feature, in C order of `shape`, or one for all features; None
            where there is no bound.
        high: The upper bounds, likewise.
        kind: The kind, as in `Part`.
        categories: The number of categories, as in `Part`.

    """

    name: _Text
    shape: list[Count]
    low: list[float | None]
    high: list[float | None]
    kind: Kind = "vector"
    categories: Count = 0


class ShownBehavior(WireStruct, frozen=True):
    """
    The meaning of the rows of one kind of agents, for a page that shows them.

    Attributes:
        name: The declared name of the kind, empty if it has none.
        observations: The parts of an observation, which cover all features in order.
        low: Lower bound of each continuous action, None without one.
        high: Upper bound of each continuous action, None without one.
        branches: Number of choices of each discrete action; discrete actions come last.
        positions: Indices of two features that are coordinates in a plane; empty without any.
        game: The declared description of the game, None if there is none.
        names: Names of the actions for people, continuous ones first; empty if not declared.
        choices: Names of the choices for people, of all branches one after another; empty if not
            declared.

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
    One call in which a guest submits rows, and the answer to it.

    Each list has an item for each row that is shown.

    Attributes:
        behavior: The index of the meaning of its rows among the document's behaviors.
        session: Number of its session, from 0 in the order of first submits.
        training: True for a session of a training.
        code: The code that the guest got, 0 for success; None if the trace has no answer.
        rows: Number of rows, of which the first are shown.
        agents: The id of each row's agent as text, because it may have 64 bits.
        states: The state of the episode of each agent.
        rewards: The reward of each row.
        returns: The sum of rewards of each agent's episode so far.
        observations: The features of each row, without features of images.
        actions: The actions of each row, as the policy gave them; empty if the submit was refused.
        values: The value estimates of the policy; empty if all are zero.
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
        """Return a copy that shows only the first `count` rows."""
        shorter = {
            name: value[:count]
            for name in self.__struct_fields__
            if isinstance(value := getattr(self, name), list)
        }
        return replace(self, **shorter)


class ShownFrame(WireStruct, frozen=True):
    """
    A frame of a replay: one call of the guest's export.

    Attributes:
        frame: Number of the frame.
        call: The call with its arguments and its result as text.
        submits: The submits during the call.
        stopped: Why the call was not played to its end, as a sentence; else empty.

    """

    frame: Count
    call: _Text
    submits: list[ShownSubmit]
    stopped: _Text = ""


class ShownLine(WireStruct, frozen=True):
    """A line of the guest's log, or of its output, which has the `level` "output"."""

    frame: Count
    level: Literal["error", "warning", "info", "debug", "trace", "output"]
    text: _Text


class ShownMark(WireStruct, frozen=True):
    """A frame that people may want to jump to, with a sentence about it."""

    frame: Count
    kind: Literal["differs", "failed", "stopped", "chosen", "episode"]
    text: _Text


class ShownCall(WireStruct, frozen=True):
    """
    A call in a guest's backtrace.

    Attributes:
        function: Name of the function.
        module: Name of the module.
        offset: Offset of the instruction in the module in bytes, None if it is not known.
        places: Source files with lines, innermost first.

    """

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

    Attributes:
        kind: Name of the error's class.
        text: The error's message.
        calls: The backtrace, innermost call first.
        memory: Memory around the address of a fault, None without one.

    """

    kind: _Text
    text: _Text
    calls: list[ShownCall]
    memory: ShownMemory | None = None


class ReplayDocument(WireStruct, frozen=True):
    """
    A replay of a guest, with everything that a page shows of it.

    Attributes:
        guest: Name of the guest.
        release: The release of arkml that recorded the replay.
        recorded_at: Nanoseconds since the Unix epoch.
        first: The number of the first frame of the trace that can be played.
        last: The number of the last frame of the trace.
        every: Every n-th frame is shown, and the frames of all `marks`.
        behaviors: The meanings of rows.
        frames: The frames that are shown, in order.
        lines: Lines of the log and of output, in order; only the last ones if there are many.
        marks: Frames to jump to, in order.
        opens_at: The number of the frame that is shown first.
        notes: Sentences about what was left out, and about a trace that ends too early.
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
        """Return the document as JSON, compressed by gzip."""
        return gzip.compress(self.as_bytes(), _LEVEL, mtime=0)

    @classmethod
    def unpack(cls, packed: bytes) -> ReplayDocument:
        """Return the document in bytes that a peer has packed. Raises ProtocolError."""
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
        """
        Return the report of a document.

        Args:
            version: The policy version that has played.
            score: The return of the episode.
            document: The document.

        """
        return cls(version, score, b64encode(document.pack()).decode())

    def packed(self) -> bytes:
        """
        Return the packed document as bytes, which are not checked.

        Raises ProtocolError for text that is not base64.
        """
        try:
            return b64decode(self.document, validate=True)
        except (binascii.Error, ValueError) as error:
            raise ProtocolError(f"the document of a replay is not base64: {error}") from None


class KeptReplay(WireStruct, frozen=True):
    """
    An entry about a replay that a run keeps.

    Attributes:
        kind: "best", "worst", "latest" or "recorded".
        version: The policy version that has played.
        score: The return of the episode.
        at: Time at which the hive received it, in nanoseconds since the Unix epoch.

    """

    kind: ReplayKind
    version: PolicyVersion
    score: float
    at: Count


class ReplayList(WireStruct, frozen=True):
    """The replays that a run keeps: one of each kind at most, except several recorded ones."""

    replays: list[KeptReplay]


class ReplayQuery(WireStruct, frozen=True):
    """Parameters of a request for a replay: its kind, and for a recorded one its version."""

    which: ReplayKind = "latest"
    version: PolicyVersion | None = None
