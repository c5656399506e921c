"""A guest's request to start training: one shape for five versions of `start_training`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from arkml.abi.codes import HardwareType
from arkml.errors import InvalidArguments

_LAST_PORT = 0xFFFF


@dataclass(frozen=True, slots=True)
class HiveAddress:
    """The address of a hive; ("localhost", 12356) and ("", 0) mean the hive of this host."""

    url: str
    port: int

    def __post_init__(self) -> None:
        if self.port > _LAST_PORT:
            raise InvalidArguments(f"port {self.port} of hive {self.url!r} is above {_LAST_PORT}")


@dataclass(frozen=True, slots=True)
class TrainingRequest:
    """
    The run that a guest asks for; fields that its version of the ABI lacks keep their defaults.

    `experiment` is the name of the run and `namespace` that of the game. `configuration` comes back
    to the guest byte for byte. The run starts from `checkpoint` if it is not empty, and ends after
    `seconds`, never for None. The `workers` that a hive is to start run the guest's own module, or
    the uploaded one whose SHA-256 is `worker_module`; `input` is that of the guest's call. `module`
    is a name of a module, which the hive keeps and shows.
    """

    hive: HiveAddress
    experiment: str
    namespace: str
    num_features: int | None = None
    num_actions: int | None = None
    workers: int = 0
    configuration: str = ""
    checkpoint: str = ""
    seconds: int | None = None
    protocol: Mapping[str, Any] | None = None
    module: str = ""
    hardware: HardwareType = HardwareType.CPU
    worker_module: str = ""
    input: bytes = b""

    def __post_init__(self) -> None:
        if self.configuration:
            require_json(self.configuration)


def require_json(text: str) -> None:
    """Raise InvalidArguments unless `text` is one JSON value."""
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArguments(f"the configuration is not JSON: {error}") from error
