"""The title, note and tags that people give a run, in a file of the run's directory."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Self

from msgspec import field
from msgspec.structs import replace

from arkml.base.files import write_atomic
from arkml.errors import HiveRefused
from arkml.hive.protocol.labels import LabelsChange
from arkml.hive.protocol.wire import Count, WireStruct
from arkml.server.hive_files import read_kept

LABELS_NAME = "labels.json"

_CHANGED_MEANWHILE = 409


class Labels(WireStruct, frozen=True):
    """
    The labels of a run: title, note, tags, a star, and whether it is archived.

    `note_revision` counts the changes of the note.
    """

    title: str = ""
    note: str = ""
    note_revision: Count = 0
    tags: list[str] = field(default_factory=list)
    starred: bool = False
    archived: bool = False

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the labels in a file. Raises ProtocolError for values that no change accepts."""
        labels = super().from_bytes(data)
        values = labels.as_json()
        del values["note_revision"]
        LabelsChange.from_json(values)
        return labels

    def shown(self) -> dict[str, Any]:
        """Return the labels that lists of runs show, as fields of `RunInfo`, without empty ones."""
        values = {
            "title": self.title,
            "tags": self.tags,
            "starred": self.starred,
            "archived": self.archived,
        }
        return {name: value for name, value in values.items() if value}


class RunLabels:
    """The labels of one run. A file that is damaged counts as none, and is logged."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / LABELS_NAME
        self._changing = asyncio.Lock()
        self.now = read_kept(self._path, Labels) or Labels()

    async def change(self, change: LabelsChange) -> Labels:
        """
        Apply a change to the labels, and return all of them.

        Raises HiveRefused for a note that someone else has changed meanwhile, and OSError. An error
        leaves all labels as they were.
        """
        async with self._changing:
            before = self.now
            given = change.given
            revision = given.pop("note_revision", before.note_revision)
            if "note" in given and given["note"] != before.note:
                if revision != before.note_revision:
                    raise HiveRefused(
                        f"the note was changed meanwhile, from revision {revision} to"
                        f" {before.note_revision}: load it anew, and change that",
                        _CHANGED_MEANWHILE,
                    )
                given["note_revision"] = before.note_revision + 1
            if "tags" in given:
                given["tags"] = list(dict.fromkeys(given["tags"]))
            after = replace(before, **given)
            if after != before:
                await asyncio.to_thread(write_atomic, self._path, after.as_bytes(), durable=True)
                self.now = after
            return after
