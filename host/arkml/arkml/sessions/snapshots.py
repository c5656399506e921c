"""Model files that a guest passes to the host: logging of refusals, and packing into containers."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from arkml.abi.codes import SnapshotFormat
from arkml.errors import InvalidArguments
from arkml.policies.cervo import is_cervo, pack_onnx
from arkml.policies.library import PolicyLibrary
from arkml.sessions.state import Family, GuestState


@contextmanager
def log_refusals(guest: GuestState) -> Iterator[None]:
    """Log why a model file was refused in a `with` block, since the guest only gets a code."""
    try:
        yield
    except InvalidArguments as error:
        guest.log.say(logging.WARNING, f"a snapshot was refused: {error}")
        raise


def note_container(
    guest: GuestState, library: PolicyLibrary, snapshot: bytes, snapshot_format: SnapshotFormat
) -> None:
    """Log once that a model file which a guest declares as ONNX is a Cervo container."""
    is_declared = snapshot_format is not SnapshotFormat.ONNX
    if library.takes_snapshots and not is_declared and is_cervo(snapshot):
        text = "a snapshot declared as ONNX is a Cervo container"
        guest.log.say_once("container", logging.INFO, text)


class Packing(Family):
    """Handlers that pack models into containers, common to several import modules."""

    __slots__ = ()

    def onnx_to_cervo(self, buffer: bytes) -> bytes:
        """Return a Cervo container with an ONNX model that passes the checks of this host."""
        from arkml.policies.vetting import vet  # few guests pack models

        with log_refusals(self._guest), self._guest.account.vetting(is_of_guest=True):
            vet(buffer, self._guest.limits)
            return pack_onnx(buffer)
