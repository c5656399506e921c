"""The guest that a run keeps, so that its policies can be watched: a module, and how it begins."""

from __future__ import annotations

import os
from pathlib import Path

from arkml.base.files import read_plain, write_atomic
from arkml.errors import HiveRefused
from arkml.hive.protocol.watch_messages import GuestReport
from arkml.server.hive_files import read_kept

_MODULE, _REPORT = "guest.wasm", "guest.json"


class RunGuest:
    """
    The files `guest.wasm` and `guest.json` of a run. The methods block.

    The module is the uploaded one by another name, so it takes no room twice, and stays when the
    hive replaces that.
    """

    def __init__(self, run: Path) -> None:
        self._module = run / _MODULE
        self._report = run / _REPORT

    def keep(self, report: GuestReport, module: Path) -> None:
        """Keep an uploaded module as the guest of the run, in place of one before. OSError."""
        linked = self._module.with_suffix(".part")
        linked.unlink(missing_ok=True)
        os.link(module, linked)
        linked.replace(self._module)
        write_atomic(self._report, report.as_bytes(), durable=False)

    def report(self) -> GuestReport | None:
        """Return what is known of the guest, None if none is kept."""
        return read_kept(self._report, GuestReport)

    def read(self) -> tuple[GuestReport, bytes]:
        """Return the guest and its module. Raises HiveRefused without one, and OSError."""
        report = self.report()
        if report is None:
            raise HiveRefused(NOT_KEPT, 404)
        try:
            return report, read_plain(self._module, follow=False)
        except FileNotFoundError:
            raise HiveRefused(NOT_KEPT, 404) from None


NOT_KEPT = (
    "this run keeps no module of its guest, so nothing can be watched: arkml train --keep-module"
    " (HiveGrant(keep_module=True)) gives the hive a copy; without --hive a training does so anyway"
)
"""Why nothing can be watched of a run."""
