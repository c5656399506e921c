"""The tar archive of an NNEF model, read strictly."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from struct import unpack_from

from arkml.errors import ModelRejected, SnapshotTooLarge
from arkml.limits import Limits

GRAPH = "graph.nnef"

MAX_MEMBERS = 1_024
MAX_TEXT = 1 << 20
MAX_NESTING = 32
MAX_STATEMENTS = 4_000

_BLOCK = 512
_TENSOR_HEADER = 128
_REGULAR = (b"0", b"\0")

_SIGNATURE = re.compile(r"\bgraph\s+\w+\s*\(([^()]*)\)\s*->\s*\(([^()]*)\)\s*\{")


@dataclass(frozen=True, slots=True)
class Archive:
    """The declarations in an NNEF archive: the graph's ports, and counts of its parts."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    statements: int
    parameters: int


def read_archive(data: bytes, limits: Limits) -> Archive:
    """
    Check an NNEF archive and read its text. Raises ModelRejected, naming the member and reason.
    """
    if len(data) > limits.snapshot_bytes:
        raise SnapshotTooLarge(
            f"a model of {len(data)} bytes is larger than {limits.snapshot_bytes}"
        )
    members = _members(data)
    parameters = 0
    for name, content in members.items():
        if name == GRAPH:
            continue
        if not name.endswith(".dat"):
            raise ModelRejected(f"the archive holds {name!r}, which does not belong to a model")
        parameters += _tensor_count(name, content)
    if GRAPH not in members:
        raise ModelRejected(f"the archive holds no {GRAPH}")
    text = _checked_text(members[GRAPH])
    signature = _SIGNATURE.search(text)
    if signature is None:
        raise ModelRejected(f"{GRAPH} declares no graph")
    inputs, outputs = (_names(part) for part in signature.groups())
    if not inputs or not outputs:
        raise ModelRejected(f"{GRAPH} declares a graph without inputs or outputs")
    return Archive(inputs, outputs, text[signature.end() :].count(";"), parameters)


def _members(data: bytes) -> dict[str, memoryview]:
    """Return the regular files at the root of a tar, which must hold nothing else."""
    members: dict[str, memoryview] = {}
    view = memoryview(data)
    at = 0
    while at + _BLOCK <= len(data):
        header = data[at : at + _BLOCK]
        at += _BLOCK
        if not any(header):
            return members
        name, size = _member(header)
        if name in members or len(members) == MAX_MEMBERS:
            raise ModelRejected(f"the archive holds {name!r} twice, or more than {MAX_MEMBERS}")
        if size > len(data) - at:
            raise ModelRejected(f"the archive is cut off inside {name!r}")
        members[name] = view[at : at + size]
        at += -(-size // _BLOCK) * _BLOCK
    raise ModelRejected("not an NNEF archive: the tar has no end")


def _member(header: bytes) -> tuple[str, int]:
    """Return the name and the size of a member."""
    claimed = _octal(header[148:156])
    if claimed != sum(header[:148]) + 8 * ord(" ") + sum(header[156:]):
        raise ModelRejected("not an NNEF archive: a tar header has the wrong checksum")
    try:
        name = header[:100].split(b"\0", 1)[0].decode("ascii")
    except UnicodeDecodeError:
        raise ModelRejected("the archive holds a name that is not ASCII") from None
    if header[156:157] not in _REGULAR or (header[257:263] == b"ustar\0" and header[345] != 0):
        raise ModelRejected(f"the archive holds {name!r}, which is not a plain file")
    if not name or not name.isprintable() or set(name) & {"/", "\\"} or name.startswith("."):
        raise ModelRejected(f"the archive holds a file with the name {name!r}")
    return name, _octal(header[124:136])


def _octal(field: bytes) -> int:
    digits = field.strip(b" \0")
    if not re.fullmatch(rb"[0-7]{1,11}", digits):
        raise ModelRejected("not an NNEF archive: a number in a tar header is malformed")
    return int(digits, 8)


def _tensor_count(name: str, content: memoryview) -> int:
    """Return the number of elements of a tensor file, whose header must match its size."""
    if len(content) < _TENSOR_HEADER or bytes(content[:4]) != b"\x4e\xef\x01\x00":
        raise ModelRejected(f"{name!r} is not an NNEF tensor")
    size, rank, *dimensions, bits = unpack_from("<II8II", content, 4)
    if rank > len(dimensions):
        raise ModelRejected(f"{name!r} has {rank} dimensions")
    count: int = prod(dimensions[:rank])
    if size != len(content) - _TENSOR_HEADER or -(-count * bits // 8) != size:
        raise ModelRejected(
            f"{name!r}: {len(content) - _TENSOR_HEADER} bytes for {count} items of {bits} bits"
        )
    return count


def _checked_text(content: memoryview) -> str:
    if len(content) > MAX_TEXT:
        raise ModelRejected(f"{GRAPH} has {len(content)} bytes, more than {MAX_TEXT}")
    try:
        text = bytes(content).decode()
    except UnicodeDecodeError:
        raise ModelRejected(f"{GRAPH} is not UTF-8") from None
    depth = 0
    for bracket in re.findall(r"[][(){}<>]", text.replace("->", "")):
        depth += 1 if bracket in "[({<" else -1
        if depth > MAX_NESTING:
            raise ModelRejected(f"{GRAPH} has brackets more than {MAX_NESTING} deep")
    if text.count(";") > MAX_STATEMENTS:
        raise ModelRejected(f"{GRAPH} has more than {MAX_STATEMENTS} statements")
    return text


def _names(part: str) -> tuple[str, ...]:
    return tuple(name for name in re.split(r"[\s,]+", part) if name)
