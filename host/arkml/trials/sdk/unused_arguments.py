"""Arguments of Cogment's SDK for what is not here: those that change nothing are taken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from arkml.trials.core.error import TrialError

NO_DIRECTORY: Final = "there is no directory here: name endpoints by grpc://HOST:PORT"
NO_PROMETHEUS: Final = (
    "programs have no metrics here: `arkml trials serve --prometheus-port` has those of the server"
)

_RESERVED: Final = ("__actor_class", "__implementation")


def refuse_given(**arguments: tuple[object, str]) -> None:
    """Raise TrialError, with its reason, for the first argument that asks for something."""
    for name, (value, reason) in arguments.items():
        if value not in (None, False, 0, ""):
            raise TrialError(f"{name}={value!r}: {reason}")


def check_properties(properties: Mapping[str, str] | None, what: str) -> None:
    """Raise TrialError for a property with a name that directories reserve."""
    for name in properties or ():
        if name in _RESERVED:
            raise TrialError(f"{what} property [{name}] is reserved for internal use")
