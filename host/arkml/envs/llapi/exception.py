"""What the API raises, with the names and texts of the original."""

from __future__ import annotations

from arkml.errors import ArkmlError


class UnityException(ArkmlError):
    """Anything that goes wrong with an environment."""


class UnityEnvironmentException(UnityException):
    """An environment cannot be started, used or closed."""


class UnityCommunicationException(UnityException):
    """The other side said what it may not say."""


class UnityCommunicatorStoppedException(UnityException):
    """The other side has ended the conversation."""


class UnityObservationException(UnityException):
    """Observations are not what their specification says."""


class UnityActionException(UnityException):
    """Actions are not what their specification says."""


class UnityTimeOutException(UnityException):
    """The other side did not answer in time."""


class UnitySideChannelException(UnityException):
    """A side channel was asked for what makes no sense."""


class UnityWorkerInUseException(UnityException):
    """The port of a worker is taken."""

    MESSAGE_TEMPLATE = (
        "Couldn't start socket communication because worker number {} is still in use. "
        "You may need to manually close a previously opened environment "
        "or use a different worker number."
    )

    def __init__(self, worker_id: int) -> None:
        super().__init__(self.MESSAGE_TEMPLATE.format(worker_id))


class UnityPolicyException(UnityException):
    """A policy does not fit its trainer."""
