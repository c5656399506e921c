"""Options and limits of a server of trials."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from arkml.base.grpc_ports import METADATA_OPTIONS
from arkml.base.short_reprs import short_repr
from arkml.trials.core.error import TrialError
from arkml.trials.core.parameters import CLIENT, TrialEndpoint
from arkml.trials.wire.common_pb2 import TrialParams


@dataclass(frozen=True, slots=True)
class TrialLimits:
    """
    Limits of a server.

    Args:
        live_trials: Maximum number of trials that have not ended.
        ended_kept: Number of ended trials whose details stay visible.
        message_bytes: Maximum size of a message in bytes.
        queued_messages: Maximum number of messages that wait for an actor or environment that does
            not read; with one more it is lost.
        queued_bytes: Maximum size of these messages in bytes.
        hook_seconds: Seconds that a pre-trial hook may take.
        people: Maximum number of people who play in one hosted trial.
        lookers: Maximum number of spectators of one hosted trial.

    """

    live_trials: int = 10_000
    ended_kept: int = 1_000
    message_bytes: int = 4 << 20
    queued_messages: int = 10_000
    queued_bytes: int = 64 << 20
    hook_seconds: float = 30.0
    people: int = 256
    lookers: int = 1_000

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            if not getattr(self, name) > 0:
                raise TrialError(f"{name} is {getattr(self, name)}: it must be more than 0")

    @property
    def queued(self) -> tuple[int, int]:
        """Maximum number of messages that wait for a peer, and their maximum size in bytes."""
        return self.queued_messages, self.queued_bytes


def grpc_options(limits: TrialLimits) -> list[tuple[str, int]]:
    """Return the gRPC options that enforce the limits of messages and metadata."""
    return [
        ("grpc.max_receive_message_length", limits.message_bytes),
        ("grpc.max_send_message_length", limits.message_bytes),
        *METADATA_OPTIONS,
    ]


@dataclass(frozen=True, slots=True)
class TrialsOptions:
    """
    Options of a server, apart from its ports.

    Args:
        params: Parameters of trials that are started with a configuration, or without arguments.
        hooks: Endpoints of pre-trial hooks, such as `grpc://localhost:9001`, which change `params`
            in turn.
        classes: Actor classes that parameters may name, None for all.
        data: Directory of the log of trials, None for no log.
        limits: Limits of the server.

    Raises:
        TrialError: An endpoint is not valid for a hook.

    """

    __repr__ = short_repr

    params: TrialParams = field(default_factory=TrialParams)
    hooks: tuple[str, ...] = ()
    classes: tuple[str, ...] | None = None
    data: Path | None = None
    limits: TrialLimits = field(default_factory=TrialLimits)

    def __post_init__(self) -> None:
        for hook in self.hooks:
            if TrialEndpoint.parse(hook).scheme == CLIENT:
                raise TrialError(
                    f"the endpoint {hook!r} of a hook is one that only actors may have"
                )
