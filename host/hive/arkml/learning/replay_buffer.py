"""
The replay buffer: raw rows, each linked with its agent's next row, and random batches of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from arkml.abi.codes import EpisodeState
from arkml.batches import Floats, chunks
from arkml.hive.protocol.audit import is_audited, row_hashes
from arkml.hive.protocol.rows import MAX_ROWS, RowColumns, RowKind
from arkml.learning.algorithm import Added, HeldRows
from arkml.learning.row_memory import RowMemory, RowRegion, Slots, available_memory, lazy_zeros
from arkml.learning.trajectories import (
    FinishedEpisodes,
    SessionChains,
    TrajectoryIndex,
)
from arkml.limits import MIB

DEMONSTRATION_SHARE = 0.25
"""Largest part of the capacity that demonstrations take."""

BLOCK_BYTES = 16 * MIB
"""Bytes that the batches of one block take at most, unless one batch alone takes more."""

_DEMONSTRATION_WEIGHT = 8
_ROUNDS = 16
_LARGEST = float(np.finfo(np.float32).max)

_TERMINAL = int(EpisodeState.TERMINAL)  # numpy compares with an enumeration slowly

_STEP = np.dtype([("next", "<i8"), ("reward", "<f4"), ("ended", "<u4")])
"""The slot of the row one step later, -1 for none; the reward; 1 where the episode terminated."""


class BatchBlock(NamedTuple):
    """
    K batches of B transitions each, raw, as the replay buffer gathers them; float32, images uint8.

    Attributes:
        features: Features, without images, before the first step: [K, B, F].
        actions: Actions of the first step, within [-1, 1]: [K, B, A].
        following: Features after the last step: [K, B, F].
        rewards: Discounted sums over the steps: [K, B].
        discounts: Discounts of the return that follows, 0 where the episode terminated: [K, B].
        images: Values of the images seen before the first step: [K, B, I].
        following_images: Values of the images seen after the last step: [K, B, I].

    """

    features: Any
    actions: Any
    following: Any
    rewards: Any
    discounts: Any
    images: Any
    following_images: Any


class SlotBlock(NamedTuple):
    """
    K batches of B transitions, by the slots of their rows.

    Attributes:
        first: The slot of the first row: int32, [K, B].
        last: The slot of the row after the last step: int32, [K, B].
        rewards: Discounted sums over the steps: float32, [K, B].
        discounts: Discounts of the return that follows: float32, [K, B].
        seen: Slots of the images that are seen at the first row, the oldest first, -1 for none:
            int32, [K, B, frames], without images [K, B, 0].
        following_seen: The same at the row after the last step.

    """

    first: Any
    last: Any
    rewards: Any
    discounts: Any
    seen: Any
    following_seen: Any


class RowValues(NamedTuple):
    """
    Values of n rows that updates read.

    Attributes:
        features: Features, without images: float32, [n, F].
        actions: Actions, within [-1, 1]: float32, [n, A].
        images: Values of images: uint8, [n, I].

    """

    features: Any
    actions: Any
    images: Any

    @classmethod
    def empty(cls, count: int, features: int, actions: int, images: int) -> RowValues:
        """
        Return zeros for `count` rows, which take memory as they are written.

        Raises MemoryError if there are not enough addresses.
        """
        return cls(
            lazy_zeros((count, features), np.float32),
            lazy_zeros((count, actions), np.float32),
            lazy_zeros((count, images), np.uint8),
        )


class ReplayBuffer:
    """
    Holds the newest rows up to `capacity`; memory is allocated as the buffer fills.

    Demonstrations take at most a quarter of the buffer, and are overwritten only by demonstrations;
    other rows take the rest.

    A row is linked with the row exactly one step later, if that is added while the first is still
    held. A missing row therefore removes a transition and never invents one (decision 7). A chain
    that breaks off ends at its last known row, where values are bootstrapped: only a Terminal row
    has no value after it, and only with `masking`.

    Args:
        capacity: The largest number of rows.
        features: The number of features of a row, including images.
        actions: The number of actions of a row.
        gamma: The discount of a step.
        images: The number of values of images.
        frames: The number of consecutive rows whose images are seen at once.
        masking: Whether a Terminal row ends the return.
        available: Returns the bytes of memory that the process can still take.

    Raises:
        MemoryError: There are not enough addresses for `capacity` rows.

    """

    def __init__(
        self,
        capacity: int,
        features: int,
        actions: int,
        *,
        gamma: float,
        images: int = 0,
        frames: int = 1,
        masking: bool = True,
        available: Callable[[], float] = available_memory,
    ) -> None:
        self.rows = 0
        """Rows added, including those overwritten since."""
        self.held = 0
        """Rows in the buffer, whose slots are 0 to `held` - 1."""
        self._capacity = capacity
        self._gamma = gamma
        self._masking = masking
        self._frames = frames
        try:
            self._values = RowValues.empty(capacity, features - images, actions, images)
            self._steps = lazy_zeros((capacity,), _STEP)
            self._before = lazy_zeros((capacity,), np.int64)  # slots of rows one step earlier
            self._sessions = lazy_zeros((capacity,), np.uint32)
            self._hashes = lazy_zeros((capacity,), np.uint64)
            self._demonstrations = RowRegion(max(1, int(capacity * DEMONSTRATION_SHARE)))
            self._others = RowRegion(capacity)
        except MemoryError as error:
            raise MemoryError(
                f"no memory for {capacity:,} rows of {features:,} features ({error}):"
                " set a smaller memory_max_size"
            ) from error
        row_bytes = 4 * (features - images + actions) + images + _STEP.itemsize + 4 + 8 + 8 + 8
        self._memory = RowMemory(row_bytes, available)
        self._chains = SessionChains(gamma)
        self._listed: dict[RowRegion | None, Slots] = {}
        self._written: list[Slots] | None = None

    @property
    def demonstrations(self) -> int:
        """Number of rows in the buffer that are demonstrations."""
        return self._demonstrations.held

    @property
    def transitions(self) -> int:
        """Number of rows in the buffer that are linked with a next row."""
        return self._others.transitions + self._demonstrations.transitions

    def add(self, session: int, kind: int, columns: RowColumns) -> Added:
        """
        Add rows of one session, in push order, or none if memory is short; see `RowStore.add`.
        """
        self._memory.claim(min(self.held + len(columns), self._capacity))
        self._chains.note_rewards(columns.reward)
        chains = self._chains.index(session, kind)
        before = len(chains)
        most = self._demonstrations.limit
        if kind != RowKind.DEMONSTRATION:
            most = max(1, self._capacity - most)
        size = min(most, MAX_ROWS)
        if len(columns) <= size:
            parts = [self._add(chains, session, kind, columns)]
        else:
            parts = []
            for rows in chunks(len(columns), size):
                part = self._add(chains, session, kind, columns.take(rows))
                ended = part.episodes._replace(rows=part.episodes.rows + rows.start)
                parts.append(part._replace(episodes=ended))
        self._listed.clear()
        self._chains.count(len(chains) - before, self._oldest)
        if len(parts) == 1:
            return parts[0]
        episodes = (np.concatenate(each) for each in zip(*(p.episodes for p in parts), strict=True))
        return Added(np.concatenate([part.returns for part in parts]), FinishedEpisodes(*episodes))

    def cut(self, session: int) -> None:
        """End all chains of consecutive rows in a session that has lost rows."""
        self._chains.cut(session)

    def draw(
        self, random: np.random.Generator, batches: int, size: int, demonstrations: float = 0.0
    ) -> Slots:
        """
        Draw slots of linked rows with replacement: int64, [batches, size].

        There must be at least one transition.

        Args:
            random: The generator of the draws.
            batches: The number of batches.
            size: The number of transitions of a batch.
            demonstrations: The largest fraction of demonstrations in a batch. While there are few,
                the fraction is smaller: each is drawn eight times as often as another row. With 0
                they are drawn like other rows.

        """
        share = self._share(demonstrations)
        if share is None:
            return self._draw(random, batches * size, None).reshape(batches, size)
        # Each batch has the share to within one transition, and all of them together, too.
        ends = np.floor(np.arange(batches + 1) * (size * share) + random.random()).astype(np.int64)
        is_demonstration = np.arange(size) < np.diff(ends)[:, None]
        slots = np.empty((batches, size), np.int64)
        for region, mask in (
            (self._demonstrations, is_demonstration),
            (self._others, ~is_demonstration),
        ):
            slots[mask] = self._draw(random, int(mask.sum()), region)
        return slots

    def gather(self, slots: Slots, length: int, block: BatchBlock) -> None:
        """
        Write the transitions of up to `length` steps that begin at `slots` into a block.

        Extreme rewards are clipped to the bounds of the chains.

        Args:
            slots: The slot of the first row of each transition, which is linked: int64, [k, B].
            length: The largest number of steps of a transition.
            block: The block whose first k batches are filled.

        """
        first, count = slots.reshape(-1), len(slots)
        last = self._walk(slots, length, block.rewards[:count], block.discounts[:count])
        for source, places, out in (
            (self._values.features, first, block.features),
            (self._values.features, last, block.following),
            (self._values.actions, first, block.actions),
        ):
            # Other modes than "raise" write into `out` without a buffer.
            flat = out[:count].reshape(len(first), source.shape[1])
            np.take(source, places, axis=0, out=flat, mode="clip")
        self._gather_images(first, block.images[:count])
        self._gather_images(last, block.following_images[:count])

    def note_writes(self) -> None:
        """Begin to note the slots that are written, for `written`; those held now count."""
        self._written = [np.arange(self.held)]

    def written(self) -> Slots:
        """
        Return the slots that were written since the last call or `note_writes`, each once.

        int64, [n], ascending.
        """
        assert self._written is not None
        noted, self._written = self._written, []
        return np.unique(np.concatenate(noted)) if noted else np.zeros(0, np.int64)

    def forget_writes(self) -> None:
        """Note no slots any more."""
        self._written = None

    def copy_rows(self, slots: Slots, rows: RowValues) -> None:
        """Copy the rows in `slots`, int64, [n], into the first n of `rows`."""
        for source, out in zip(self._values, rows, strict=True):
            np.take(source, slots, axis=0, out=out[: len(slots)], mode="clip")

    def place(self, slots: Slots, length: int, block: SlotBlock) -> None:
        """
        Write the slots that transitions consist of into a block, as `gather` does.

        Args:
            slots: The slot of the first row of each transition: int64, [k, B].
            length: The largest number of steps of a transition.
            block: The block whose first k batches are filled.

        """
        count = len(slots)
        last = self._walk(slots, length, block.rewards[:count], block.discounts[:count])
        block.first[:count] = slots
        block.last[:count] = last.reshape(slots.shape)
        for rows, seen in ((slots.reshape(-1), block.seen), (last, block.following_seen)):
            if seen.shape[2]:
                places = seen[:count].reshape(len(last), -1)
                for frame, found in self._frames_before(rows):
                    places[:, frame] = found

    def _walk(self, slots: Slots, length: int, rewards_of: Floats, discounts: Floats) -> Slots:
        """
        Return the slot of the row after the last step of each transition, int64, [k * B].

        Args:
            slots: The slot of the first row of each: int64, [k, B].
            length: The largest number of steps.
            rewards_of: Filled with the discounted sums of rewards: float32, [k, B].
            discounts: Filled with the discounts of the return that follows: float32, [k, B].

        """
        first = slots.reshape(-1)
        last: Slots = self._steps["next"][first]
        step = self._steps.take(last, mode="clip")
        bounds = self._chains.reward_bounds
        rewards = np.clip(step["reward"], *bounds)
        factors = np.full(len(first), self._gamma)
        if length > 1:
            rewards = rewards.astype(np.float64)
        for _ in range(length - 1):
            following = step["next"]
            has_next = following >= 0
            if not has_next.any():
                break
            np.copyto(last, following, where=has_next)
            step = self._steps.take(last, mode="clip")
            rewards += has_next * factors * np.clip(step["reward"], *bounds)
            factors *= np.where(has_next, self._gamma, 1.0)
        rewards_of[:] = np.clip(rewards, -_LARGEST, _LARGEST).reshape(slots.shape)
        discounts[:] = (factors * (step["ended"] == 0)).reshape(slots.shape)
        return last

    def audit(self) -> HeldRows:
        """Return the number and the checksums of the rows in the buffer."""
        return HeldRows.of(self._hashes[: self.held], self._sessions[: self.held])

    def _gather_images(self, slots: Slots, out: Any) -> None:
        """Write the images that rows see, the oldest first: uint8, [k, B, frames * I]."""
        if not out.size:
            return
        images = self._values.images
        seen = out.reshape(len(slots), self._frames, images.shape[1])
        for frame, found in self._frames_before(slots):
            np.take(images, found, axis=0, out=seen[:, frame], mode="clip")
            seen[found < 0, frame] = 0

    def _frames_before(self, slots: Slots) -> Iterator[tuple[int, Slots]]:
        """Yield each frame that rows see, the newest first, with its slots, -1 for none."""
        for frame in reversed(range(self._frames)):
            yield frame, slots
            slots = np.where(slots < 0, -1, self._before[slots])

    def _add(self, chains: TrajectoryIndex, session: int, kind: int, columns: RowColumns) -> Added:
        is_demonstration = kind == RowKind.DEMONSTRATION
        region = self._demonstrations if is_demonstration else self._others
        extension = chains.extend(columns, region.rows, self._chains.reward_bounds)
        slots = self._take_slots(region, len(columns))
        region.push(slots)
        self.rows += len(columns)
        self._steps["next"][slots] = -1
        self._steps["reward"][slots] = columns.reward
        self._steps["ended"][slots] = (columns.state == _TERMINAL) & self._masking
        self._values.features[slots] = columns.features
        self._values.images[slots] = columns.images
        self._values.actions[slots] = np.clip(columns.action, -1.0, 1.0)
        if self._written is not None:
            self._written.append(slots)
        self._sessions[slots] = session
        if is_audited():
            self._hashes[slots] = row_hashes(session, kind, columns)
        previous = extension.previous
        linked = previous >= region.oldest
        before = region.slots(previous[linked])
        self._steps["next"][before] = slots[linked]
        self._before[slots] = -1
        self._before[slots[linked]] = before
        region.transitions += int(linked.sum())
        return Added(extension.discounted[previous >= 0], extension.episodes)

    def _take_slots(self, region: RowRegion, count: int) -> Slots:
        """Return slots for new rows: unused slots first, then the slots of the oldest rows."""
        unused = min(count, region.limit - region.held, self._capacity - self.held)
        taken = [np.arange(self.held, self.held + unused)]
        self.held += unused
        if region is self._demonstrations:
            missing = min(count, region.limit - region.held) - unused
            taken.append(self._release(self._others, missing))
        taken.append(self._release(region, count - sum(map(len, taken))))
        return np.concatenate(taken)

    def _release(self, region: RowRegion, count: int) -> Slots:
        slots = region.release(count)
        following = self._steps["next"][slots]
        self._before[following[following >= 0]] = -1
        region.transitions -= int((following >= 0).sum())
        return slots

    def _oldest(self, kind: int) -> int:
        """Return the number of the oldest row that is kept of a kind."""
        is_demonstration = kind == RowKind.DEMONSTRATION
        return (self._demonstrations if is_demonstration else self._others).oldest

    def _share(self, most: float) -> float | None:
        """Return the share of demonstrations, None if all rows are to be drawn alike."""
        weight = _DEMONSTRATION_WEIGHT * self._demonstrations.transitions
        if not most or not weight:
            return None
        others = self._others.transitions
        return min(most, weight / (weight + others)) if others else 1.0

    def _draw(self, random: np.random.Generator, count: int, region: RowRegion | None) -> Slots:
        """Draw slots of linked rows of a region, or of all rows: int64, [count]."""
        if not count:
            return np.zeros(0, np.int64)
        held, transitions = self.held, self.transitions
        if region is not None:
            held, transitions = region.held, region.transitions
        # Usually most rows are linked: listing these costs more than a few misses.
        rounds = 0 if 8 * transitions < held else _ROUNDS
        slots = np.empty(count, np.int64)
        missing = np.arange(count)
        for _ in range(rounds):
            drawn = self._draw_any(random, len(missing), region)
            slots[missing] = drawn
            missing = missing[self._steps["next"][drawn] < 0]
            if not len(missing):
                return slots
        listed = self._list(region)
        slots[missing] = listed[random.integers(0, len(listed), len(missing))]
        return slots

    def _draw_any(self, random: np.random.Generator, count: int, region: RowRegion | None) -> Slots:
        if region is None:
            return random.integers(0, self.held, count)
        return region.draw(random, count)

    def _list(self, region: RowRegion | None) -> Slots:
        """Return the slots of all linked rows of a region, or of all rows."""
        if region not in self._listed:
            slots = np.arange(self.held) if region is None else region.held_slots()
            self._listed[region] = slots[self._steps["next"][slots] >= 0]
        return self._listed[region]


def empty_block(batches: int, size: int, numbers: int, actions: int, images: int = 0) -> BatchBlock:
    """
    Return a block of zeros for `batches` batches of `size` transitions.

    Each array begins at a page, so JAX may read it without a copy, also after a call has returned:
    fill it again only when the updates made from it are done.

    Args:
        batches: The number of batches.
        size: The number of transitions of a batch.
        numbers: The number of features of a row, without images.
        actions: The number of actions of a row.
        images: The number of values of the images that are seen at a row.

    """
    widths = ((numbers,), (actions,), (numbers,), (), ())
    columns = [lazy_zeros((batches, size, *width), "<f4") for width in widths]
    seen = [lazy_zeros((batches, size, images), np.uint8) for _ in range(2)]
    return BatchBlock(*columns, *seen)


def most_batches(
    size: int, numbers: int, actions: int, images: int = 0, *, limit: int = BLOCK_BYTES
) -> int:
    """Return the number of batches of `size` transitions that fit `limit` bytes, at least 1."""
    row = 4 * (2 * numbers + actions + 2) + 2 * images
    return max(1, limit // (size * row))
