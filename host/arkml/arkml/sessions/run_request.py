"""A guest's request to start training, in one form for five versions of `start_training`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from arkml.abi.codes import HardwareType
from arkml.errors import InvalidArguments
from arkml.hive.protocol.runs import MAX_NAME_BYTES
from arkml.hive.protocol.settings import MAX_SETTINGS_BYTES

MAX_URL = 2_048
"""The longest address of a hive, in characters."""

_LAST_PORT = 0xFFFF
_COPIES = 3  # a text, and its form in the JSON of a request, which may take twice as much
_INPUT_COPIES = 11  # bytes that become text, of 4 bytes a character, and escapes of 6
_PIECE = 96  # bytes of memory of a list, of an item of one, or of half an item of an object
_PARSED = 36  # bytes of memory of a byte of JSON, at most
_SHOWN = 40  # characters of a name that is too long


@dataclass(frozen=True, slots=True)
class HiveAddress:
    """
    The address of a hive; ("localhost", 12356) and ("", 0) mean the hive of this host.

    Raises InvalidArguments for a URL of more than MAX_URL characters, and for a port over 65535.
    """

    url: str
    port: int

    def __post_init__(self) -> None:
        if len(self.url) > MAX_URL:  # before urllib sees it, which keeps what it has parsed
            raise InvalidArguments(
                f"the address of a hive has {len(self.url)} characters, it may have {MAX_URL}"
            )
        if self.port > _LAST_PORT:
            raise InvalidArguments(f"port {self.port} of hive {self.url!r} is above {_LAST_PORT}")


@dataclass(frozen=True, slots=True)
class TrainingRequest:
    """
    The run that a guest asks for; fields that its version of the ABI lacks keep their defaults.

    Raises InvalidArguments for names of more than MAX_NAME_BYTES, and for a configuration that is
    not JSON.

    Attributes:
        experiment: Name of the run, such as "walker".
        namespace: Name of the game.
        configuration: JSON, which the hive returns to the guest byte for byte; or empty.
        checkpoint: Checkpoint to start from, or empty.
        seconds: Seconds after which the run ends; None sets no limit.
        workers: Number of rollout workers that a hive should start.
        worker_module: SHA-256 of the uploaded module that the workers run, empty for the guest's
            own.
        input: Input bytes of the guest's present call.
        module: Name of the module, which the hive stores and shows.

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
        require_name("the name of a run", self.experiment)
        require_name("the name of a game", self.namespace)
        require_name("the name of a checkpoint", self.checkpoint)
        require_name("the name of a module", self.module)
        if self.configuration:
            require_json(self.configuration)

    @property
    def size(self) -> int:
        """
        Estimated bytes, generously, that the request holds until it is done.

        It counts the texts, their encoded forms, and the parsed settings of the configuration.
        """
        names = self.experiment, self.namespace, self.checkpoint, self.module
        texts = sum(map(sys.getsizeof, (*names, self.configuration)))
        pieces = sum(map(self.configuration.count, "[{,:"))
        settings = min(_PIECE * pieces, _PARSED * MAX_SETTINGS_BYTES)
        return _COPIES * texts + _INPUT_COPIES * sys.getsizeof(self.input) + settings


def require_name(kind: str, text: str) -> None:
    """
    Raise InvalidArguments if a text is too long; `kind` names it, such as "the name of a run".
    """
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_NAME_BYTES:
        raise InvalidArguments(
            f"{kind} is {text[:_SHOWN]!r}... of {size} bytes, it may have {MAX_NAME_BYTES}"
        )


def require_json(text: str) -> None:
    """Raise InvalidArguments unless `text` is one JSON value."""
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArguments(f"the configuration is not JSON: {error}") from error
