"""Snapshots that a guest brings: refusals are told, and models are packed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from arkml.errors import InvalidArguments
from arkml.policies.cervo import pack_onnx
from arkml.sessions.state import Family, GuestState


@contextmanager
def refusals_told(guest: GuestState) -> Iterator[None]:
    """Log why a snapshot is refused: a guest sees a number only."""
    try:
        yield
    except InvalidArguments as error:
        guest.log.say(logging.WARNING, f"a snapshot was refused: {error}")
        raise


class Packing(Family):
    """Packing a model, which several import modules offer."""

    __slots__ = ()

    def onnx_to_cervo(self, buffer: bytes) -> bytes:
        """A Cervo container with the ONNX model, which must be one that this host would run."""
        from arkml.policies.vetting import vet  # few guests pack models

        with refusals_told(self._guest):
            vet(buffer, self._guest.limits)
            return pack_onnx(buffer)
