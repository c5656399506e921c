"""Sending of demonstrations to the run of a training, before a guest plays."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from arkml.demonstrations.dataset import DemonstrationSet
from arkml.errors import NotTrainable, Unavailable
from arkml.hive.protocol.session_messages import ON_POLICY
from arkml.hive.protocol.settings import Settings

if TYPE_CHECKING:
    from arkml.hive.client import HiveClient
    from arkml.hive.protocol.runs import RunInfo


class DemonstrationFeed:
    """
    Sends demonstrations to the first run that the guests of a host start.

    A resumed run, which has got them already, does not get them again.
    """

    def __init__(self, demonstrations: DemonstrationSet) -> None:
        self._warn: Callable[[str], object] = lambda _: None
        self._demonstrations = demonstrations
        self._lock = threading.Lock()
        self._run: str | None = None

    def report(self, warn: Callable[[str], object]) -> None:
        """Call `warn` with a sentence for each fault of the demonstrations, now and later."""
        self._warn = warn
        for sentence in self._demonstrations.warnings:
            warn(sentence)

    def require(self, name: str, settings: Settings) -> None:
        """Raise NotTrainable if a run with these settings cannot learn from the demonstrations."""
        if self._run is not None:
            return
        rows = self._demonstrations
        widths = (rows.features, rows.actions)
        if widths != (settings.features, settings.actions):
            raise NotTrainable(
                f"the demonstrations have {widths[0]} features and {widths[1]} actions, and run"
                f" {name!r} has {settings.features} and {settings.actions}"
            )
        if rows.branches is not None and rows.branches != settings.branches:
            raise NotTrainable(
                f"the demonstrations have branches of {list(rows.branches)} choices, and run"
                f" {name!r} has {list(settings.branches)}"
            )
        if settings.learner in ON_POLICY:
            raise NotTrainable(_off_policy(name, settings.learner))

    @contextmanager
    def sent(self, client: HiveClient, run: RunInfo) -> Iterator[None]:
        """
        Send the demonstrations to a run, unless an earlier call sent them to a run already.

        The session that sends them stays open until the `with` block ends. The guest joins the run
        within the block, so that the run is never without a session, which would stop it. Calls for
        other guests wait until the rows are sent.

        Args:
            client: The client of the hive.
            run: The run.

        Raises:
            HiveError: The demonstrations cannot be sent.
            Unavailable: The run learns by an algorithm that does not use demonstrations.

        """
        with self._lock:
            if self._run is not None:
                upload = None
            else:
                rows = self._demonstrations
                upload = client.demonstrate(run.id, rows.columns, rows.digest).result()
                if upload.is_on_policy:
                    client.end_upload(upload)
                    raise Unavailable(_off_policy(run.name, upload.learner))
                self._run = run.id
                if lost := upload.ledger.refused + upload.ledger.discarded:
                    self._warn(f"the hive did not take {lost:,} of the demonstrations")
        try:
            yield
        finally:
            if upload is not None:
                client.end_upload(upload)


def _off_policy(name: str, learner: str) -> str:
    return (
        f"run {name!r} learns by {learner}, from rows of its own policy only, and not from"
        " demonstrations: the algorithm sac does"
    )
