"""The exceptions of the ML-Agents API."""

from __future__ import annotations

from typing import ClassVar

from arkml.errors import ArkmlError


class UnityException(ArkmlError):
    """Any error of an ML-Agents environment."""


class UnityEnvironmentException(UnityException):
    """An environment could not be started, reached or closed."""


class UnityCommunicationException(UnityException):
    """An unexpected message was received."""


class UnityCommunicatorStoppedException(UnityException):
    """The player reported that it has stopped."""


class UnityObservationException(UnityException):
    """An observation does not match its specification."""


class UnityActionException(UnityException):
    """An action does not match its specification."""


class UnityTimeOutException(UnityException):
    """The player did not answer in time."""


class UnitySideChannelException(UnityException):
    """A side channel is used wrongly."""


class UnityPolicyException(UnityException):
    """A policy or its trainer failed."""


class UnityRegistryException(UnityException):
    """A manifest or an archive of the registry was refused. Not in `mlagents_envs`."""


class UnityWorkerInUseException(UnityException):
    """The port of a worker is in use."""

    MESSAGE_TEMPLATE: ClassVar[str] = (
        "Couldn't start socket communication because worker number {} is still in use. "
        "You may need to manually close a previously opened environment "
        "or use a different worker number."
    )

    def __init__(self, worker_id: int) -> None:
        super().__init__(self.MESSAGE_TEMPLATE.format(worker_id))
        self.worker_id = worker_id

    def __reduce__(self) -> tuple[type[UnityWorkerInUseException], tuple[int]]:
        return type(self), (self.worker_id,)
