"""Metadata of guests in lockstep that their runs have not noted yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from arkml.batches import MetadataLog
from arkml.envs.core.id_search import Places
from arkml.hive.protocol.runs import MAX_NAMES
from arkml.marks import Marks

_MOST_LOGS = 64  # that wait: together they are entered in little more time than one of them


class UnnotedMetadata:
    """
    The newest value of each name that each of some guests has said.

    `note` has the run of a guest note values by name. There are MAX_NAMES names at most, which is
    what a run keeps; all are noted where more come.
    """

    def __init__(self, guests: int, note: Callable[[int, Mapping[str, float]], None]) -> None:
        self._guests = guests
        self._note = note
        self._logs: list[tuple[Places, MetadataLog]] = []  # that are not among the values yet
        self._values: dict[str, tuple[npt.NDArray[np.float64], Marks]] = {}  # and who said them

    def __len__(self) -> int:
        """Return the number of names."""
        self._enter()
        return len(self._values)

    def add(self, guests: Places, said: MetadataLog) -> None:
        """Keep what guests, intp, [n], have said; row k of the log is that of `guests[k]`."""
        if said:
            self._logs.append((guests, said))
            if len(self._logs) == _MOST_LOGS:
                self._enter()

    def hand_over(self, guest: int) -> None:
        """Have the run of a guest note what the guest has said, and forget it."""
        self._enter()
        said = {name: values[guest] for name, (values, has) in self._values.items() if has[guest]}
        if said:
            self.forget(guest)
            self._note(guest, said)

    def forget(self, guest: int) -> None:
        """Forget what a guest has said."""
        self._enter()
        for _, has in self._values.values():
            has[guest] = False

    def _enter(self) -> None:
        """Take the values of the logs that wait."""
        logs, self._logs = self._logs, []
        found: dict[str, list[tuple[Places, npt.NDArray[np.float64]]]] = {}
        for guests, said in logs:
            sayers = guests[said.rows]
            if len(said.names) == 1:
                found.setdefault(said.names[0], []).append((sayers, said.values))
                continue
            for code, name in enumerate(said.names):
                items = (said.codes == code).nonzero()[0]
                found.setdefault(name, []).append((sayers[items], said.values[items]))
        for name, parts in found.items():
            if name not in self._values:
                if len(self._values) >= MAX_NAMES:
                    self._note_all()
                self._values[name] = np.zeros(self._guests), np.zeros(self._guests, bool)
            values, has = self._values[name]
            sayers = np.concatenate([guests for guests, _ in parts])
            values[sayers] = np.concatenate([said for _, said in parts])  # the last one counts
            has[sayers] = True

    def _note_all(self) -> None:
        said: dict[int, dict[str, float]] = {}
        for name, (values, has) in self._values.items():
            for guest in has.nonzero()[0].tolist():
                said.setdefault(guest, {})[name] = values[guest]
        self._values.clear()
        for guest, items in said.items():
            self._note(guest, items)
