"""
Trace files: a head, then segments that begin with a state, in compressed blocks.

A block is a kind, the size of its contents, a checksum of both, and the contents, compressed. A
file grows at its end while the guest runs, so that a process that dies loses only the last second.
Once the file exceeds its limit, it is written anew with its last segments.
"""

from __future__ import annotations

import os
import struct
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from arkml.base.files import lock_file, read_file
from arkml.base.loggers import SafeLogger
from arkml.base.output_files import path_of
from arkml.base.short_reprs import cut_repr
from arkml.errors import TraceRefused, UsageError
from arkml.guests.trace_events import End, Event, Head, Start
from arkml.limits import GIB, MIB
from arkml.runtime.memory import BytesLike

log = SafeLogger(__name__)

_MAGIC = b"arkml-trace\n"
_VERSION = 1
_BLOCK = struct.Struct("<BII")  # kind, size, checksum
_LEVEL = 1  # of compression: memories are large, and mostly zeros
_MOST_FILE = 4 * GIB
_MOST_HEAD, _MOST_STATE = 16 * MIB, 4 * GIB
_MOST_OF_EVENTS, _MOST_EVENTS = 1 * GIB, 1 << 24  # bytes of a segment, unpacked, and their number
_KEPT = 0.75  # of the limit, that a file is shortened to
_MOST_WAITING = 64 * MIB  # bytes of one file, above which a slow disk costs a gap


class BlockKind(IntEnum):
    """Kinds of blocks in a trace file."""

    HEAD = 0
    START = 1
    EVENTS = 2
    END = 3


class TraceFile:
    """
    One trace file, written by the thread of a `TraceWriter`.

    Its size stays below `limit`: the oldest segments are removed, but never the last one. A segment
    that exceeds the limit by itself is cut off, with a warning; the next one is written again.
    """

    def __init__(self, writer: TraceWriter, path: Path, limit: int, head: Head) -> None:
        """Make the file. Raises UsageError."""
        self.path = path
        self._writer = writer
        self._limit = limit
        self._head = _MAGIC + bytes((_VERSION,)) + _block(BlockKind.HEAD, head)
        self._segments: list[int] = []  # their sizes
        self._is_lost = self._is_full = False
        self._has_warned = False
        self._waiting = 0  # bytes that the thread has not written yet
        try:
            self._file = _locked(path)
            self._file.write(self._head)
            self._file.flush()
        except BlockingIOError:
            raise UsageError(
                f"the trace {path} is being written by another host: give each a path of its own"
            ) from None
        except OSError as error:
            raise UsageError(f"the trace {path} cannot be written: {error.strerror}") from None

    @property
    def is_over(self) -> bool:
        """True once the end of the trace has been written."""
        return self._file.closed

    @property
    def is_behind(self) -> bool:
        """True if the disk is too slow, so that a new block would wait for long."""
        return self._waiting >= _MOST_WAITING

    def put(self, kind: BlockKind, content: Any, size: int = 0) -> None:
        """Queue a block of about `size` bytes for the thread. Safe in a finalizer, never waits."""
        self._waiting += size
        self._writer.put(self, kind, content, size)

    def write(self, kind: BlockKind, content: Any, size: int) -> None:
        """Write a block now, on the thread of the writer."""
        self._waiting -= size
        if kind is BlockKind.START and self._is_full:
            content.follows = False  # the events before it were left out
        try:
            if not self._is_lost:
                self._append(kind, _block(kind, content))
        except OSError as error:
            self._is_lost = True
            log.warning("the trace %s ends here: %s", self.path, error.strerror)
        finally:
            if kind is BlockKind.END:
                with suppress(OSError):  # what the disk did not take, which was said
                    self._file.close()

    def _append(self, kind: BlockKind, block: bytes) -> None:
        if kind is BlockKind.START:
            self._segments.append(0)
            self._is_full = False
        elif kind is BlockKind.EVENTS and self._is_full:
            return
        room = self._limit - len(self._head)
        if kind is not BlockKind.END and sum(self._segments) + len(block) > room:
            self._shorten(len(block))
            if kind is BlockKind.EVENTS and self._segments[-1] + len(block) > room:
                self._is_full = True
                self._warn()
                return
        self._file.write(block)
        self._file.flush()
        if self._segments:
            self._segments[-1] += len(block)

    def _shorten(self, more: int) -> None:
        """Drop the oldest segments, so that a block of `more` bytes finds room."""
        goal, kept = int(self._limit * _KEPT), list(self._segments)
        while len(kept) > 1 and sum(kept) + more > goal:
            kept.pop(0)
        dropped = sum(self._segments) - sum(kept)
        if not dropped:
            return
        self._file.seek(len(self._head) + dropped)
        rest = self._file.read()
        part = self.path.with_name(f".{self.path.name}.part")
        made = _locked(part)
        made.write(self._head + rest)
        made.flush()
        part.replace(self.path)
        self._file.close()
        self._file, self._segments = made, kept

    def _warn(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "the trace %s has reached its limit of %d bytes within one segment: what follows is"
                " left out up to the next state of the guest",
                self.path, self._limit,
            )  # fmt: skip


class TraceWriter:
    """
    The thread that compresses and writes the blocks of traces, so that no frame waits for it.

    The thread ends with the last file.
    """

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[TraceFile, BlockKind, Any, int] | threading.Event] = (
            SimpleQueue()
        )
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._open = 0  # files whose end is not written

    def open(self, path: Path, limit: int, head: Head) -> TraceFile:
        """Return a new trace file that the thread writes. Raises UsageError."""
        file = TraceFile(self, path, limit, head)
        with self._lock:
            if self._thread is None:
                name = "arkml-trace-writer"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._thread.start()
            self._open += 1
        return file

    def put(self, file: TraceFile, kind: BlockKind, content: Any, size: int) -> None:
        """Queue a block of a file. Safe in a finalizer."""
        self._queue.put((file, kind, content, size))

    def drain(self, seconds: float | None = None) -> None:
        """Wait until all blocks queued so far are written, for at most `seconds`."""
        reached = threading.Event()
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                return
            self._queue.put(reached)
        reached.wait(seconds)

    def _run(self) -> None:
        while True:
            item = self._queue.get()
            if isinstance(item, threading.Event):
                item.set()
            else:
                self._write(*item)
            with self._lock:
                if not self._open and self._queue.empty():
                    self._thread = None
                    return

    def _write(self, file: TraceFile, kind: BlockKind, content: Any, size: int) -> None:
        try:
            file.write(kind, content, size)
        except Exception:
            log.exception("the trace %s lacks a block, a bug of the host", file.path)
        if kind is BlockKind.END:
            with self._lock:
                self._open -= 1


def _locked(path: Path) -> IO[bytes]:
    """Empty a file, locked until it is closed. Raises OSError; see `lock_file`."""
    file = os.fdopen(lock_file(path), "r+b")  # opened once: the name may be another file's by now
    file.truncate()
    return file


def _block(kind: BlockKind, content: Any) -> bytes:
    data = zlib.compress(msgspec.msgpack.encode(content), _LEVEL)
    return _BLOCK.pack(kind, len(data), _checksum(kind, data)) + data


def _checksum(kind: int, data: bytes) -> int:
    return zlib.crc32(data, kind)


class TraceSegment:
    """
    One segment of a trace, unpacked only when it is read, because a small file may hold many.

    Attributes:
        frame: The number of frames before the segment.

    """

    def __init__(self, start: bytes) -> None:
        """Take the block of its state. Raises TraceRefused."""
        self._start = start
        self._packed: list[bytes] = []
        self.frame = self.start.frame

    @property
    def start(self) -> Start:
        """The state of the guest at the beginning of the segment."""
        start: Start
        start, _ = _decoded(self._start, Start, _MOST_STATE)
        return start

    def add(self, packed: bytes) -> None:
        """Append a compressed block of events."""
        self._packed.append(packed)

    def events(self) -> list[Event]:
        """Return the events of the segment. Raises TraceRefused, also for too many."""
        events: list[Event] = []
        room = _MOST_OF_EVENTS
        for packed in self._packed:
            most = Meta(max_length=_MOST_EVENTS - len(events))
            more, size = _decoded(packed, Annotated[list[Event], most], room)
            events += more
            room -= size
        return events


class TraceContents(NamedTuple):
    """
    The contents of a trace file.

    Attributes:
        head: Facts about the guest.
        segments: The segments, at least one.
        end: The reason why the trace ends, "closed", "failed" or "reloaded", or an empty text.
        damage: A sentence about a file that is cut or altered, or an empty text.

    """

    head: Head
    segments: Sequence[TraceSegment]
    end: str
    damage: str


def read_trace(source: str | os.PathLike[str] | BytesLike) -> TraceContents:
    """
    Read a trace from a file, or from the bytes of one.

    If the file is cut or altered, the part before the damage is returned. Raises TraceRefused for a
    file that is not a trace, is of a later release, or is damaged before the first events, and
    UsageError for a file that cannot be read.
    """
    data, label = _contents(source)
    if not data.startswith(_MAGIC):
        raise TraceRefused(f"{label} is not a trace of a guest: it begins with {data[:12]!r}")
    at = len(_MAGIC) + 1
    if len(data) >= at and data[at - 1] != _VERSION:
        raise TraceRefused(
            f"{label} has version {data[at - 1]} of traces, and this release of arkml reads version"
            f" {_VERSION}: replay it with the release that wrote it"
        )
    head: Head | None = None
    segments: list[TraceSegment] = []
    end = damage = ""
    blocks = _blocks(data, at)
    while not end:
        try:
            kind, packed = next(blocks)
            if head is None:
                head, _ = _decoded(packed, Head, _MOST_HEAD)
            elif kind == BlockKind.START:
                segments.append(TraceSegment(packed))
            elif kind == BlockKind.EVENTS and segments:
                segments[-1].add(packed)
            elif kind == BlockKind.END:
                end = _decoded(packed, End, _MOST_HEAD)[0].reason
        except StopIteration:
            break
        except TraceRefused as error:
            damage = str(error)
            break
    if end and not segments:
        raise TraceRefused(f"{label} has no call: its guest ended before the next one")
    if head is None or not segments:
        raise TraceRefused(f"{label} is damaged: {damage or 'it ends before its first state'}")
    return TraceContents(head, segments, end, damage)


def _contents(source: str | os.PathLike[str] | BytesLike) -> tuple[bytes, str]:
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source), "the trace"
    if not isinstance(source, str | os.PathLike):
        raise UsageError(f"a trace is {cut_repr(source)}: it takes a path, or the bytes of a file")
    path = path_of(source, "trace")
    try:
        return read_file(path, most=_MOST_FILE), str(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None


def _blocks(data: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    """Yield the blocks of a file. Raises TraceRefused for one that is cut or altered."""
    while at < len(data):
        if at + _BLOCK.size > len(data):
            raise TraceRefused(f"it is cut at byte {at:,}")
        kind, size, checksum = _BLOCK.unpack_from(data, at)
        packed = data[at + _BLOCK.size : at + _BLOCK.size + size]
        if len(packed) < size:
            raise TraceRefused(f"it is cut in the block at byte {at:,}")
        if _checksum(kind, packed) != checksum:
            raise TraceRefused(f"it was altered in the block at byte {at:,}")
        yield kind, packed
        at += _BLOCK.size + size


def _decoded(packed: bytes, kind: Any, most: int) -> tuple[Any, int]:
    """Unpack the contents of a block, and return their bytes, too. Raises TraceRefused."""
    unzip = zlib.decompressobj()
    try:
        content = unzip.decompress(packed, most) if most else b""
        if not unzip.eof:
            raise TraceRefused(f"a block is cut, or unpacks to more than {most:,} bytes")
        return msgspec.msgpack.decode(content, type=kind), len(content)
    except (zlib.error, msgspec.MsgspecError) as error:
        raise TraceRefused(f"a block cannot be unpacked: {error}") from error
