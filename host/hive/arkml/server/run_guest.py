"""The guest that a run keeps so that people can watch its policies: a module, and its arguments."""

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

    `guest.wasm` is a hard link to the uploaded module: it takes no further space, and stays when
    the hive removes the upload.
    """

    def __init__(self, run: Path) -> None:
        self._module = run / _MODULE
        self._report = run / _REPORT

    def keep(self, report: GuestReport, module: Path) -> None:
        """
        Store an uploaded module as the guest of the run, in place of an earlier one.

        Raises OSError.
        """
        linked = self._module.with_suffix(".part")
        linked.unlink(missing_ok=True)
        os.link(module, linked)
        linked.replace(self._module)
        write_atomic(self._report, report.as_bytes(), durable=False)

    def report(self) -> GuestReport | None:
        """Return the name, arguments and other facts of the stored guest, None if there is none."""
        return read_kept(self._report, GuestReport)

    def read(self) -> tuple[GuestReport, bytes]:
        """
        Return the facts about the stored guest, and its module.

        Raises HiveRefused if there is no guest, and OSError.
        """
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
