"""The labels that people give a run: a title, a note, tags, a star, and whether it is archived."""

from __future__ import annotations

import re
from typing import Any, Self

from msgspec import UNSET, UnsetType
from msgspec.structs import asdict

from arkml.base.short_reprs import cut_repr
from arkml.errors import ProtocolError
from arkml.hive.protocol.runs import RunInfo
from arkml.hive.protocol.wire import Count, WireStruct

MAX_TITLE = 200
"""The longest title of a run, in characters."""

MAX_NOTE_BYTES = 64 << 10
"""The longest note of a run, in bytes of UTF-8."""

MAX_TAGS = 32
"""The number of tags that a run has at most."""

MAX_TAG = 64
"""The longest tag, in characters."""

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_ADVICE = "leave out letters that are not printed, such as controls"


class LabelsChange(WireStruct, frozen=True, forbid_unknown_fields=True):
    """
    A change of a run's labels; a field that is left out stays as it is.

    Attributes:
        title: Shown in place of the run's name; empty to show the name.
        note: A text of several lines.
        note_revision: The revision of the note that the change is based on. If the note has another
            revision now, the change is refused by 409. Without it, the note replaces any other one.
        tags: All tags; one that is given twice counts once.
        starred: True puts the run before others.
        archived: True hides the run in lists, without removing anything.

    """

    title: str | UnsetType = UNSET
    note: str | UnsetType = UNSET
    note_revision: Count | UnsetType = UNSET
    tags: list[str] | UnsetType = UNSET
    starred: bool | UnsetType = UNSET
    archived: bool | UnsetType = UNSET

    @classmethod
    def from_json(cls, values: object) -> Self:
        """Return the change with these values. Raises ProtocolError."""
        change = super().from_json(values)
        if change.title is not UNSET:
            _check_line("title", change.title, MAX_TITLE)
        if change.note is not UNSET:
            _check_note(change.note)
        if change.tags is not UNSET:
            _check_tags(change.tags)
        return change

    @property
    def given(self) -> dict[str, Any]:
        """The fields that are given, by name."""
        return {name: value for name, value in asdict(self).items() if value is not UNSET}


class LabelsReply(WireStruct, frozen=True):
    """A run whose labels have changed, with its note and the revision of the note."""

    run: RunInfo
    note: str
    note_revision: Count


def _check_line(name: str, text: str, most: int) -> None:
    if len(text) > most:
        raise ProtocolError(f"{name} is {cut_repr(text)} of {len(text)} letters: {most} at most")
    if not text.isprintable():
        raise ProtocolError(f"{name} is {cut_repr(text)}: {_ADVICE}")


def _check_note(note: str) -> None:
    if found := _CONTROLS.search(note):
        raise ProtocolError(f"the note has U+{ord(found[0]):04X} at {found.start()}: {_ADVICE}")
    size = len(note.encode())
    if size > MAX_NOTE_BYTES:
        raise ProtocolError(f"the note has {size} bytes: {MAX_NOTE_BYTES} at most")


def _check_tags(tags: list[str]) -> None:
    if len(tags) > MAX_TAGS:
        raise ProtocolError(f"{len(tags)} tags: a run has {MAX_TAGS} at most")
    for tag in tags:
        _check_line("a tag", tag, MAX_TAG)
        if not tag or tag != tag.strip() or "," in tag:
            raise ProtocolError(
                f"a tag is {cut_repr(tag)}: it takes letters without commas, and without spaces at"
                " its ends"
            )
