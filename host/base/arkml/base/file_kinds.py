"""The kinds of files, by their first bytes."""

from __future__ import annotations

import re

MODULE = "a WebAssembly module"
CERVO = "a Cervo container"
ONNX = "an ONNX model"

_KINDS = (
    (b"\0asm", MODULE),
    (b"CRVO", CERVO),
    (b"\x89PNG", "a PNG picture"),
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"PK\3\4", "a ZIP archive, as torch.save and numpy.savez write"),
    (b"\x80\2", "a Python pickle"),
    (b"\x80\4", "a Python pickle"),
    (b"\x80\5", "a Python pickle"),
    (b"\x7fELF", "a program or library of Linux"),
    (b"\xcf\xfa\xed\xfe", "a program or library of macOS"),
    (b"MZ", "a program or library of Windows"),
)
_TEXT = re.compile(rb"(?:\s|;;[^\n]*\n)*\(\s*module\b")
_ONNX_NEXT = frozenset(b"\x12\x1a\x22\x28\x32\x3a\x42\x72")


def kind_of(data: bytes) -> str:
    """
    Return the kind of a file as a phrase, such as `a PNG picture`; "" for any other kind.

    WebAssembly text counts as a module.
    """
    for begin, kind in _KINDS:
        if data[: len(begin)] == begin:
            return kind
    if _TEXT.match(data):
        return MODULE
    if data[:32].lstrip().lower().startswith((b"<!doctype html", b"<html")):
        return "a page of HTML"
    # `ir_version`, which every exporter writes first, and the tag of what follows it
    if data[:1] == b"\x08" and data[1:2] < b"\x20" and data[2:3] and data[2] in _ONNX_NEXT:
        return ONNX
    if data[4:10] == b'\0\0\0\0{"':  # the length of a header, and the header
        return "a file of safetensors, as a learner's checkpoint is"
    return ""
