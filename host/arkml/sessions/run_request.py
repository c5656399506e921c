"""What a guest asks a hive for: one shape for five versions of `start_training`."""

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
    """Where a hive listens: ("localhost", 12356) and ("", 0) mean the hive of this host."""

    url: str
    port: int

    def __post_init__(self) -> None:
        if self.port > _LAST_PORT:
            raise InvalidArguments(f"port {self.port} of hive {self.url!r} is above {_LAST_PORT}")


@dataclass(frozen=True, slots=True)
class Launch:
    """
    An experiment to start. Fields that the guest's version does not have keep their defaults.

    `configuration` comes back to the guest byte for byte. `namespace` is what v1 to v4 call the
    game. A `checkpoint` that is not empty is where the experiment starts from.
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

    def __post_init__(self) -> None:
        if self.configuration:
            require_json(self.configuration)


def require_json(text: str) -> None:
    """Raise InvalidArguments unless `text` is one JSON value."""
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArguments(f"the configuration is not JSON: {error}") from error
