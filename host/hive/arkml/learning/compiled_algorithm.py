"""Base classes of algorithms whose updates JAX compiles: their state, policy and rows."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from arkml.base.loggers import SafeLogger
from arkml.hive.protocol.settings import Settings
from arkml.learning.algorithm import Diverged, PolicyModel, State
from arkml.learning.checkpoint_files import CheckpointDamaged
from arkml.learning.device_rows import DeviceRows
from arkml.learning.jax_engine import Compilable, CompiledAhead, find_devices, nothing, reason_of
from arkml.learning.networks import learning_rate, mapped, random_key
from arkml.learning.normalizer import Normalizer
from arkml.learning.policy_graph import PolicyTemplate, PolicyWeights
from arkml.learning.rate_limiter import MOST_UPDATES, RateLimiter
from arkml.learning.replay_buffer import ReplayBuffer, empty_block, most_batches
from arkml.learning.row_memory import Slots
from arkml.learning.tensors import flatten, restored

log = SafeLogger(__name__)

FASTER = 1.0 / 1.2
"""The share of the time by which another device has to make updates to be used."""

TRIALS = 4
"""Turns of updates that two devices make both, to be compared; the first does not count."""

_NO_ROOM = "RESOURCE_EXHAUSTED"  # what XLA's errors begin with where a device has no memory left


class CompiledAlgorithm(ABC):
    """
    Base class of an algorithm whose state is a tree of arrays, and whose updates JAX compiles.

    A policy can be exported without JAX. A subclass has its rows, its pace and `train`, which calls
    functions of `compiled` by `called`, with the state, and sets the state by `advance`. `n_opts`
    counts updates, including updates before a restart. `at_work` is called during a long call of
    `train`, so that the learner does not seem to hang.

    Where a GPU is there and no device is asked for, the first updates are made on the processor,
    while threads compile for the GPU. Then both compute the same for some turns of updates, with
    the rows of the training, and if the GPU takes less than FASTER of the time, all that follows is
    computed there. Other shapes, as for more agents, are tried anew. In lockstep bits may not
    depend on times, so it stays on the processor.
    """

    def __init__(self, settings: Settings, normalizer: Normalizer, first: Any) -> None:
        """Begin with the state `first`. Raises InvalidSettings if there is no such device."""
        self._devices = find_devices(settings.device)
        self.device = self._devices[0]
        is_tried = len(self._devices) > 1 and not settings.sync
        self._candidate = self._devices[1] if is_tried else ""
        self._rival = ""  # the candidate, while it is tried
        self._spent = 0.0, 0.0  # seconds of the present turn, here and by the rival
        self._trials: list[tuple[float, float]] = []  # of those before
        self.n_opts = 0
        self.at_work: Callable[[], None] = nothing
        self._settings = settings
        self._normalizer = normalizer
        self._random = np.random.default_rng(settings.seed)
        self._state = first
        self._compiled: list[CompiledAhead] = []
        self._template: PolicyTemplate | None = None

    def compiled(
        self, load: Callable[[], Callable[..., Any]], *examples: Any, wide: bool = False
    ) -> Any:
        """
        Return a function whose compilation begins in `prepare`, or at its first call.

        Args:
            load: Imports JAX, and returns the function.
            examples: Arguments with the shapes that the function takes.
            wide: Whether the function computes on all threads of the process (`widen`). Arrays of
                functions that are not wide then become unusable.

        """
        program = Compilable(load, examples, wide, self._settings.precision == "float32")
        made = CompiledAhead(program, self._devices, at_work=lambda: self.at_work())
        self._compiled.append(made)
        self._rival, self._spent = self._candidate, (0.0, 0.0)  # for these shapes, too
        self._trials.clear()
        return made

    def called(self, function: CompiledAhead, *arguments: Any) -> Any:
        """Return the result of a function of `compiled`, computed by the present device."""
        began = time.perf_counter()
        outcome = function(*arguments)
        if self._rival:
            self._try_rival(time.perf_counter() - began, function, arguments)
        return outcome

    def prepare(self) -> None:
        """Begin to compile the updates."""
        for function in self._compiled:
            function.begin()

    def advance(self, outcome: Any, updates: int) -> None:
        """
        Take over the state after `updates` updates. Raises Diverged, and then keeps the old state.
        """
        if not outcome.is_finite:
            raise Diverged(
                f"losses or weights are not finite after update {self.n_opts}; these updates are"
                " not applied"
            )
        self._state = outcome.state
        self.n_opts += updates
        self._compare()

    def _try_rival(self, seconds: float, function: CompiledAhead, arguments: Sequence[Any]) -> None:
        """
        Have another device compute the same, once it has all programs, and note what both took.

        Args:
            seconds: What the present device took.
            function: What was computed.
            arguments: The arguments of that.

        """
        try:
            for each in self._compiled:
                each.begin(self._rival)
            if not all(each.is_compiled(self._rival) for each in self._compiled):
                return
            copies = [mapped(np.asarray, argument) for argument in arguments]
            other = function.seconds_on(self._rival, *copies)
        except Exception as error:  # noqa: BLE001  whatever its driver raises: it is not needed
            log.warning(
                "updates stay on %s: %s fails (%s)", self.device, self._rival, reason_of(error)
            )
            self._candidate = ""
            self._stay()
            return
        own, others = self._spent
        self._spent = own + seconds, others + other

    def _compare(self) -> None:
        """Decide where updates are made from now on, once enough of them were made by both."""
        if not self._rival or not self._spent[1]:
            return
        self._trials.append(self._spent)
        self._spent = 0.0, 0.0
        if len(self._trials) < TRIALS:
            return
        own, other = np.median(self._trials[1:], axis=0)  # the first one warms a device up
        is_faster = other < FASTER * own
        log.info(
            "updates are made on %s from now on: %.3g ms on %s, %.3g ms on %s",
            self._rival if is_faster else self.device,
            1e3 * own, self.device, 1e3 * other, self._rival,
        )  # fmt: skip
        if is_faster:
            self.device, self._devices = self._rival, (self._rival,)
            self._state = mapped(np.array, self._state)
            self._candidate = ""
        self._stay()

    def _stay(self) -> None:
        """Compute on the present device alone."""
        self._rival = ""
        for function in self._compiled:
            function.use(self.device)

    def metrics(self) -> Mapping[str, float]:
        """Return whether updates are made on a GPU, if there is one."""
        return {"train/on_gpu": float(self.device == "cuda")} if "cuda" in self._devices else {}

    @abstractmethod
    def weights(self) -> PolicyWeights:
        """
        Return a copy of the present policy's weights, with its scaling of features and rewards.
        """

    def policy(self) -> PolicyModel:
        """Return the present policy as ONNX. Raises Diverged and ExportWrong."""
        weights = self.weights()
        tensors = weights.tensors()
        if not all(map(np.all, map(np.isfinite, tensors.values()))):
            raise Diverged(f"weights are not finite after update {self.n_opts}")
        if self._template is None:
            self._template = PolicyTemplate(weights)
        model = self._template.filled(tensors)
        weights.check(model)
        return PolicyModel(model, self.n_opts)

    def state(self) -> State:
        """Return a copy of everything that determines the next updates, except the rows."""
        return State(
            flatten(self._saved()),
            {"n_opts": self.n_opts, "random": self._random.bit_generator.state} | self._facts(),
        )

    def restore(self, state: State) -> None:
        """Continue from a state. Raises CheckpointDamaged if it does not fit the run."""
        saved, random = restored(self._saved(), state.tensors), np.random.default_rng(0)
        try:
            random.bit_generator.state = state.plain["random"]
            self._continue(saved, state.plain)
        except (AttributeError, KeyError, ValueError, TypeError) as error:
            raise CheckpointDamaged(f"the checkpoint does not fit this run: {error}") from error
        self._random = random
        self.n_opts = int(self._state.n_opts)

    def _saved(self) -> Any:
        """Return the tree of arrays that a checkpoint holds."""
        return self._state

    def _facts(self) -> dict[str, Any]:
        """Return further JSON values of a checkpoint."""
        return {}

    def _continue(self, saved: Any, facts: Mapping[str, Any]) -> None:
        """Continue from what `_saved` and `_facts` returned; changes nothing where facts lack."""
        del facts
        self._state = saved


class ReplayAlgorithm(CompiledAlgorithm):
    """
    An algorithm that learns from random batches of a replay buffer, in turns of many updates.

    A subclass has a function `make_updates(state, block, count, key, rates)`, which returns an
    `updates.Updated`, and names its losses and figures.
    """

    is_on_policy = False

    def __init__(
        self,
        settings: Settings,
        normalizer: Normalizer,
        first: Any,
        load: Callable[[], Callable[..., Any]],
    ) -> None:
        super().__init__(settings, normalizer, first)
        self.buffer = ReplayBuffer(
            settings.memory_max_size,
            settings.features,
            settings.actions,
            gamma=settings.gamma,
            images=settings.images,
            frames=settings.frames,
            masking=settings.use_terminal_masking,
        )
        self.pace = RateLimiter(settings)
        self._key = random_key(settings)
        self._figures: Any = None
        widths = settings.numbers, settings.actions, settings.frames * settings.images
        shape = (settings.batch_size, *widths)
        self._block = empty_block(min(MOST_UPDATES, most_batches(*shape)), *shape)
        self._load = load
        self._there: DeviceRows | None = None
        self._has_room = not settings.sync  # on the device, so far as is known
        self._make_updates = self.compiled(
            load, first, self._block, np.int32(0), self._key, self._rates()
        )

    @property
    def is_ready(self) -> bool:
        """True if the replay buffer holds enough rows for an update."""
        enough = self.buffer.held >= self._settings.memory_min_size
        return enough and self.buffer.transitions > 0

    def train(self, updates: int) -> dict[str, float]:
        """Make `updates` updates and return the mean losses by tag. Raises Diverged."""
        rates = self._rates()
        counts: list[int] = []
        losses: list[tuple[float, ...]] = []
        while updates:
            count = min(updates, len(self._block.features))
            outcome = self._updated_there(count, rates)
            if outcome is None:
                self.buffer.gather(self._slots(count), self._settings.rollout_length, self._block)
                outcome = self.called(
                    self._make_updates, self._state, self._block, np.int32(count), self._key, rates
                )
            self.advance(outcome, count)
            updates -= count
            counts.append(count)
            losses.append(tuple(map(float, outcome.losses)))
            self._figures = outcome.figures
        if not losses:
            return {}
        return self._tagged(*map(float, np.average(losses, axis=0, weights=counts))) | {
            "train/learning_rate": learning_rate(self._settings, self.n_opts - 1),
            "train/n_updates": float(self.n_opts),
        }

    def metrics(self) -> Mapping[str, float]:
        """Return the figures of the newest update and of the replay buffer."""
        held, there = self.buffer.held, self._there is not None and self._there.is_ready
        on_gpu = {"replay/on_gpu": float(there)} if "cuda" in self._devices else {}
        figures = {} if self._figures is None else self._described(*map(float, self._figures))
        return {
            **super().metrics(),
            **on_gpu,
            **figures,
            "replay/fill": held / self._settings.memory_max_size,
            "replay/demonstration_share": self.buffer.demonstrations / held if held else 0.0,
        }

    def published(self, version: int) -> None:
        """Do nothing, since rows of any policy version are learned from."""
        del version

    def name_metrics(self, names: Sequence[str]) -> None:
        """Do nothing, since metrics are not learned from."""
        del names

    def _slots(self, count: int) -> Slots:
        """Draw the slots of `count` batches."""
        settings = self._settings
        return self.buffer.draw(self._random, count, settings.batch_size, settings.demo_fraction)

    def _updated_there(self, count: int, rates: Any) -> Any:
        """
        Return the outcome of updates on rows that lie on the GPU; None if none do, or not yet.

        A GPU that refuses them is named once, and batches are sent to it from then on.
        """
        if self.device == "cpu" or not self._has_room:
            return None
        if self._there is None:
            examples = self._state, self._key, rates
            self._there = DeviceRows(self.buffer, self._settings, self.device, self._load, examples)
        if not self._there.is_ready:
            return None
        try:
            return self._there.updates(self._state, self._slots(count), self._key, rates)
        except Exception as error:  # noqa: BLE001  whatever its driver raises: batches are sent
            reason = reason_of(error)
            log.warning(
                "rows are kept in the memory of this machine, and batches of them sent to %s, which"
                " %s %s rows (%s)",
                self.device, "has no room for" if _NO_ROOM in reason else "cannot work on",
                f"{self._settings.memory_max_size:,}", reason,
            )  # fmt: skip
            self._there, self._has_room = None, False
            self.buffer.forget_writes()
            return None

    @abstractmethod
    def _rates(self) -> Any:
        """Return the numbers that the updates take now, a named tuple of arrays."""

    @abstractmethod
    def _tagged(self, *losses: float) -> dict[str, float]:
        """Return mean losses by tag, in the order of their named tuple."""

    @abstractmethod
    def _described(self, *figures: float) -> dict[str, float]:
        """Return figures of the newest update by tag, in the order of their named tuple."""
