"""The buffer of an actor, which sends items to the trainer's replay buffer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from arkml.async_trainer.core.buffers import ExperienceBufferBase
from arkml.async_trainer.core.config_files import YamlConfig, check_whole
from arkml.async_trainer.messages import PushedItemMessage
from arkml.errors import UsageError


@dataclass(frozen=True)
class ReplayBufferProxyConfig(YamlConfig):
    """Configuration of ReplayBufferProxy: a message has `n_buffer` items."""

    n_buffer: int

    def __post_init__(self) -> None:
        check_whole("n_buffer", self.n_buffer, 1)


class ReplayBufferProxy(ExperienceBufferBase):
    """
    Collects items of an actor and sends them in messages of `n_buffer` items.

    Args:
        id: Number of the actor.
        config: Configuration.
        send: Function that sends a message.
        incarnation: Number of the actor's incarnation.

    """

    def __init__(
        self,
        id: int,
        config: ReplayBufferProxyConfig,
        send: Callable[[PushedItemMessage], None],
        incarnation: int = 0,
    ) -> None:
        self._id = id
        self._n_buffer = config.n_buffer
        self._send = send
        self._incarnation = incarnation
        self._sequence = 0
        self._items: list[Any] = []

    def push(self, item: Any) -> None:
        """Add an item; each `n_buffer`-th sends a message. Raises the errors of `send`."""
        items = self._items
        items.append(item)
        if len(items) == self._n_buffer:
            self.flush()

    def flush(self) -> None:
        """Send the remaining items, if any."""
        if not self._items:
            return
        items, self._items = self._items, []
        message = PushedItemMessage(self._id, items, self._incarnation, self._sequence)
        self._sequence += 1
        self._send(message)

    def __len__(self) -> NoReturn:
        raise UsageError("a proxy of a replay buffer has no length: its samples are elsewhere")

    def batch(self, size: int) -> NoReturn:
        """Raise UsageError: only the trainer's replay buffer draws batches."""
        raise UsageError(f"a proxy of a replay buffer has no batch of {size} samples to draw")
