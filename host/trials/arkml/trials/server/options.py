"""Options of a server of trials."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from arkml.base.short_reprs import short_repr
from arkml.trials.core.endpoints import CLIENT, TrialEndpoint
from arkml.trials.core.error import TrialError
from arkml.trials.wire.common_pb2 import TrialParams

METADATA_BYTES = 8 << 10
"""Size of the metadata of a call or an answer over gRPC, which is also gRPC's own default."""


@dataclass(frozen=True, slots=True)
class TrialLimits:
    """
    Limits of a server; messages are measured in bytes.

    `ended_kept` trials stay visible after their end. `queued_messages` and `queued_bytes` may wait
    for an actor or an environment that does not read, which is lost with one more. `people` may
    play in one hosted trial by taking over its actors, and `lookers` may look at it.
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


def grpc_options(limits: TrialLimits) -> list[tuple[str, int]]:
    """Return what gRPC's ports and channels need to keep the limits of messages and metadata."""
    return [
        ("grpc.max_receive_message_length", limits.message_bytes),
        ("grpc.max_send_message_length", limits.message_bytes),
        ("grpc.max_metadata_size", METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", METADATA_BYTES),  # else some over the other are taken
    ]


@dataclass(frozen=True, slots=True)
class TrialsOptions:
    """
    Options of a server, apart from its ports.

    Trials that are started with a configuration, or with nothing, have the parameters `params`
    after each of `hooks`, endpoints of pre-trial hooks, has changed them. `classes` are the actor
    classes that parameters may name, None if all. `data` is the directory of the log of trials,
    None for no log.
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
