"""A copy of a replay buffer's rows on a GPU: rows go there once, and batches as their slots."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from arkml.hive.protocol.settings import Settings
from arkml.learning.jax_engine import Compilable, CompiledAhead
from arkml.learning.rate_limiter import MOST_UPDATES
from arkml.learning.replay_buffer import BatchBlock, ReplayBuffer, RowValues, SlotBlock
from arkml.learning.row_memory import Slots

CHUNK = 4_096
"""Rows that are sent at once; a program serves one number of rows."""


class DeviceRows:
    """
    Rows of a replay buffer in the memory of a device, and updates on batches that are read there.

    Threads compile the programs, after which `is_ready` is True. Calls raise what JAX raises, such
    as an error of a device without memory for `capacity` rows; the object is of no use then.

    Args:
        buffer: The replay buffer, which notes what is written from now on.
        settings: The settings of the run.
        device: The name of the device.
        load: Imports JAX, and returns the algorithm's `make_updates`.
        examples: Its arguments but block and number: state, key and rates.

    """

    def __init__(
        self,
        buffer: ReplayBuffer,
        settings: Settings,
        device: str,
        load: Callable[[], Callable[..., Any]],
        examples: tuple[Any, Any, Any],
    ) -> None:
        self._buffer = buffer
        self._length = settings.rollout_length
        batches, frames = MOST_UPDATES, settings.frames if settings.images else 0
        shape = (batches, settings.batch_size)
        self._block = SlotBlock(
            *(np.zeros(shape, kind) for kind in (np.int32, np.int32, np.float32, np.float32)),
            *(np.zeros((*shape, frames), np.int32) for _ in range(2)),
        )
        widths = settings.numbers, settings.actions, settings.images
        self._chunk = RowValues.empty(CHUNK, *widths)
        self._slots = np.zeros(CHUNK, np.int32)
        self._capacity = settings.memory_max_size
        memory = RowValues.empty(self._capacity, *widths)  # addresses, and no memory
        is_exact = settings.precision == "float32"
        self._programs = [
            CompiledAhead(Compilable(load, shapes, False, is_exact, donated), (device,))
            for load, shapes, donated in (
                (partial(_load_zeros, self._capacity, widths), (), ()),
                (_load_put, (memory, self._slots, self._chunk), (0,)),
                (
                    partial(_load_updates, load),
                    (examples[0], memory, self._block, np.int32(0), *examples[1:]),
                    (),
                ),
            )
        ]
        self._device = device
        self._memory: Any = None
        buffer.note_writes()
        for program in self._programs:
            program.begin()

    @property
    def is_ready(self) -> bool:
        """True once all programs are compiled, or have failed to be."""
        return all(program.is_compiled(self._device) for program in self._programs)

    def updates(self, state: Any, slots: Slots, key: Any, rates: Any) -> Any:
        """
        Send the rows that are new, and return the outcome of an update on each of some batches.

        Args:
            state: The algorithm's state.
            slots: The slots of the first rows of transitions: int64, [k, B].
            key: The run's random key.
            rates: The rates of this call.

        """
        zeros, put, updates = self._programs
        if self._memory is None:
            self._memory = zeros()
        written = self._buffer.written()
        for start in range(0, len(written), CHUNK):
            part = written[start : start + CHUNK]
            self._slots[: len(part)] = part
            self._slots[len(part) :] = self._capacity  # which is nowhere
            self._buffer.copy_rows(part, self._chunk)
            self._memory = put(self._memory, self._slots, self._chunk)
        self._buffer.place(slots, self._length, self._block)
        return updates(state, self._memory, self._block, np.int32(len(slots)), key, rates)


class _Gathered:
    """A column of batches, each of which is gathered from a column of rows when it is asked for."""

    def __init__(self, rows: Any, slots: Any) -> None:
        self._rows = rows
        self._slots = slots

    def __getitem__(self, number: Any) -> Any:
        return self._rows[self._slots[number]]


class _GatheredImages(_Gathered):
    """Images of batches, those of several rows side by side; zeros for the slot -1."""

    def __getitem__(self, number: Any) -> Any:
        slots = self._slots[number]
        seen = self._rows[slots] * (slots >= 0)[..., None]
        return seen.reshape(len(slots), slots.shape[1] * self._rows.shape[1])


def _load_zeros(capacity: int, widths: tuple[int, int, int]) -> Callable[[], Any]:
    import jax.numpy as jnp

    kinds = jnp.float32, jnp.float32, jnp.uint8
    shapes = [(capacity, width) for width in widths]
    return lambda: RowValues(*(jnp.zeros(*one) for one in zip(shapes, kinds, strict=True)))


def _load_put() -> Callable[..., Any]:
    def put(memory: RowValues, slots: Any, rows: RowValues) -> RowValues:
        pairs = zip(memory, rows, strict=True)
        return RowValues(*(held.at[slots].set(one, mode="drop") for held, one in pairs))

    return put


def _load_updates(load: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    make_updates = load()

    def updates(
        state: Any, memory: RowValues, block: SlotBlock, count: Any, key: Any, rates: Any
    ) -> Any:
        gathered = BatchBlock(
            _Gathered(memory.features, block.first),
            _Gathered(memory.actions, block.first),
            _Gathered(memory.features, block.last),
            block.rewards,
            block.discounts,
            _GatheredImages(memory.images, block.seen),
            _GatheredImages(memory.images, block.following_seen),
        )
        return make_updates(state, gathered, count, key, rates)

    return updates
