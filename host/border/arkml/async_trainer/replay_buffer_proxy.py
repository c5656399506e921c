"""The buffer of an actor: items on their way to the replay buffer of the trainer."""

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
    """Configuration of ReplayBufferProxy: `n_buffer` items make a message."""

    n_buffer: int

    def __post_init__(self) -> None:
        check_whole("n_buffer", self.n_buffer, 1)


class ReplayBufferProxy(ExperienceBufferBase):
    """
    Collects the items of the actor `id` and gives each `n_buffer` of them to `send`.

    `incarnation` and the number of messages so far are written on each message.
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
        """Add an item. The last of `n_buffer` is sent; raises what `send` raises."""
        items = self._items
        items.append(item)
        if len(items) == self._n_buffer:
            self.flush()

    def flush(self) -> None:
        """Send the items that have not been sent, if there are any."""
        if not self._items:
            return
        items, self._items = self._items, []
        message = PushedItemMessage(self._id, items, self._incarnation, self._sequence)
        self._sequence += 1
        self._send(message)

    def __len__(self) -> NoReturn:
        raise UsageError("a proxy of a replay buffer has no length: its samples are elsewhere")

    def batch(self, size: int) -> NoReturn:
        """Raise UsageError: batches are drawn where the replay buffer is."""
        raise UsageError(f"a proxy of a replay buffer has no batch of {size} samples to draw")
