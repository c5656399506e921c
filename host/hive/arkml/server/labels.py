"""What people note about a run, in a file of its own in the run's directory."""

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
    """Title, note, tags, star and archive of a run; `note_revision` counts changes of the note."""

    title: str = ""
    note: str = ""
    note_revision: Count = 0
    tags: list[str] = field(default_factory=list)
    starred: bool = False
    archived: bool = False

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return labels as a change could have made them. Raises ProtocolError for others."""
        labels = super().from_bytes(data)
        values = labels.as_json()
        del values["note_revision"]
        LabelsChange.from_json(values)
        return labels

    def shown(self) -> dict[str, Any]:
        """Return the labels that lists of runs show, without those that are not given."""
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
        Change the labels that are given, and return all of them.

        Raises HiveRefused for a note that was changed meanwhile, and OSError: then nothing changes.
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
