"""Metadata of guests stepped in lockstep, collected until it is passed to their runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from arkml.arrays import Marks
from arkml.batches import MetadataLog
from arkml.envs.core.id_search import Indices
from arkml.hive.protocol.runs import MAX_NAMES

_MOST_WAITING = 64  # together they are entered in little more time than one of them


class UnnotedMetadata:
    """
    The newest value of each name of metadata, for each guest of a fleet.

    `note` passes values by name to the run of a guest. Once there are more than MAX_NAMES names,
    the most that a run keeps, it is called for all.
    """

    def __init__(self, guests: int, note: Callable[[int, Mapping[str, float]], None]) -> None:
        self._guests = guests
        self._note = note
        self._values: dict[str, tuple[npt.NDArray[np.float64], Marks]] = {}  # and who said them
        self._waiting: list[
            tuple[str, Indices, npt.NDArray[np.float64]]
        ] = []  # to be entered there

    def __len__(self) -> int:
        """Return the number of names."""
        self._enter()
        return len(self._values)

    def add(self, guests: Indices, said: MetadataLog) -> None:
        """Add the metadata of guests, intp, [n]; row k of the log belongs to `guests[k]`."""
        if not said:
            return
        sayers = guests[said.rows]
        if len(said.names) == 1:
            self._waiting.append((said.names[0], sayers, said.values))
        else:
            for code, name in enumerate(said.names):
                items = (said.codes == code).nonzero()[0]
                self._waiting.append((name, sayers[items], said.values[items]))
        if len(self._waiting) >= _MOST_WAITING:
            self._enter()

    def hand_over(self, guest: int) -> None:
        """Pass the metadata of one guest to its run, and forget it."""
        self._enter()
        said = {}
        for name, (values, has) in self._values.items():
            if has[guest]:
                said[name] = float(values[guest])
                has[guest] = False
        if said:
            self._note(guest, said)

    def forget(self, guests: Sequence[int]) -> None:
        """Forget the metadata of guests without passing it on, because their runs may be gone."""
        for _, has in self._values.values():
            has[guests] = False
        self._enter(but=guests)

    def _enter(self, but: Sequence[int] = ()) -> None:
        """Enter the values that wait, except for some guests."""
        waiting, self._waiting = self._waiting, []
        found: dict[str, list[tuple[Indices, npt.NDArray[np.float64]]]] = {}
        for name, guests, values in waiting:
            found.setdefault(name, []).append((guests, values))
        for name, parts in found.items():
            sayers, said = (np.concatenate(column) for column in zip(*parts, strict=True))
            if but:
                kept = ~np.isin(sayers, but)
                sayers, said = sayers[kept], said[kept]
            if not len(sayers):
                continue
            if name not in self._values:
                if len(self._values) >= MAX_NAMES:
                    self._note_all()
                self._values[name] = np.zeros(self._guests), np.zeros(self._guests, bool)
            latest, has = self._values[name]
            latest[sayers] = said  # where a guest comes twice, the last one counts
            has[sayers] = True

    def _note_all(self) -> None:
        said: dict[int, dict[str, float]] = {}
        for name, (values, has) in self._values.items():
            for guest in has.nonzero()[0].tolist():
                said.setdefault(guest, {})[name] = float(values[guest])
        self._values.clear()
        for guest, items in said.items():
            self._note(guest, items)
