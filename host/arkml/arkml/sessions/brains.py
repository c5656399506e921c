"""Brains: loaded models with named inputs, and the observations queued for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from itertools import accumulate, pairwise, starmap
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from arkml.batches import Floats
from arkml.errors import (
    AbiError,
    InvalidArguments,
    ModelRejected,
    NotFound,
    StateRefused,
    TooManyRows,
)
from arkml.policies.demands import BrainDemand
from arkml.policies.network import Network
from arkml.policies.ports import Port, told_apart
from arkml.sessions.brain_memory import BrainMemory
from arkml.sessions.leases import Lease

COUNTABLE = 0xFF
"""Longest list of names, agents, or floats of one output: its length is a u8."""

MAX_DIMENSIONS = 8

_FLOATS = np.dtype(np.float32)

# Bytes that CPython 3.12 and numpy 2 take beside the numbers, rounded up.
_ARRAY_BYTES = 256  # one array of results, with its name
_PLACE_BYTES = 112  # one agent among the results
_ROW_BYTES = 256  # one observation: its array, its agent, its place in the queue


def require_countable(network: Network) -> None:
    """
    Raise ModelRejected for a model too large for ml-inference-v0, such as one with 300 outputs.
    """
    for ports, kind in ((network.inputs, "inputs"), (network.outputs, "outputs")):
        if len(ports) > COUNTABLE:
            raise ModelRejected(f"{len(ports)} {kind}, the limit is {COUNTABLE}")
        for name, port in zip(told_apart(ports), ports, strict=True):
            if len(name.encode()) > COUNTABLE:
                raise ModelRejected(f"the name {name[:40]!r}… has more than {COUNTABLE} bytes")
            if len(port.shape) > MAX_DIMENSIONS:
                raise ModelRejected(
                    f"{name} has {len(port.shape)} dimensions, the limit is {MAX_DIMENSIONS}"
                )
    for port in network.outputs:
        if port.width > COUNTABLE:
            raise ModelRejected(
                f"output {port.label} has {port.width} floats, the limit is {COUNTABLE}"
            )


class SavedSubmission(NamedTuple):
    """
    A copy of an observation that is not complete yet.

    Attributes:
        agent: The agent of the observation.
        row: The numbers: float32, [width]. None if there was no memory for them.
        given: The names of the inputs that were given.
        fault: The error to be raised when the observation is completed, or None.

    """

    agent: int
    row: Floats | None
    given: tuple[str, ...]
    fault: AbiError | None


class BrainQueue(NamedTuple):
    """
    A copy of the observations and the results of a brain.

    Attributes:
        begun: The observation that is not complete, or None.
        queued: uint64, [rows], agents whose observations wait, in order.
        rows: float32, [rows, width], the observations of these agents.
        answered: uint64, [agents], agents that the last execution answered.
        results: float32, [agents, width], the results of that execution, by the name of the output.

    """

    begun: SavedSubmission | None
    queued: npt.NDArray[np.uint64]
    rows: Floats
    answered: npt.NDArray[np.uint64]
    results: Mapping[str, Floats]

    @property
    def nbytes(self) -> int:
        """The number of bytes of the copy."""
        begun = 0 if self.begun is None or self.begun.row is None else self.begun.row.nbytes
        results = sum(floats.nbytes for floats in self.results.values())
        return begun + self.queued.nbytes + self.rows.nbytes + self.answered.nbytes + results


class Submission:
    """
    One agent's observation, given input by input.

    `places` has the slice of each input within the observation, float32, [width]: for example,
    {"position": slice(0, 3), "speed": slice(3, 4)}.
    """

    __slots__ = ("_given", "_places", "agent", "fault", "row")

    def __init__(self, agent: int, places: Mapping[str, slice]) -> None:
        self.agent = agent
        self.row: Floats | None = None
        """The observation: float32, [width]. None if there was no memory for it."""
        self.fault: AbiError | None = None
        """The error to be raised when the observation is complete, or None."""
        self._places = places
        self._given: set[str] = set()

    @classmethod
    def of(cls, saved: SavedSubmission, places: Mapping[str, slice]) -> Self:
        """Return a submission from its saved copy, for a brain with these inputs."""
        made = cls(saved.agent, places)
        made.row = None if saved.row is None else saved.row.copy()
        made.fault, made._given = copy(saved.fault), {*saved.given}
        return made

    def save(self) -> SavedSubmission:
        """Return a copy of the submission."""
        row = None if self.row is None else self.row.copy()
        fault = copy(self.fault)  # raised, it refers to frames, and so to the guest
        return SavedSubmission(self.agent, row, tuple(sorted(self._given)), fault)

    def add(self, name: str, floats: Floats) -> None:
        """Add one input, float32, [width]; `complete` raises the error of a wrong input."""
        if self.row is None:
            return
        place = self._places.get(name)
        if place is None:
            self.fault = self._wrong(f"the model has no input {name[:80]!r}")
            return
        width = place.stop - place.start
        if len(floats) != width:
            self.fault = self._wrong(f"input {name}: expected {width} floats, got {len(floats)}")
            return
        self.row[place] = floats
        self._given.add(name)

    def complete(self) -> Floats:
        """
        Return the observation: float32, [width], its inputs in the order of `places`.

        Raises InvalidArguments for a missing, unknown or wrong-sized input, and the error for lack
        of memory.
        """
        if self.fault is not None:
            raise self.fault
        if self.row is None or len(self._given) < len(self._places):
            missing = [name for name in self._places if name not in self._given]
            raise self._wrong(f"{', '.join(missing)} missing")
        return self.row

    def _wrong(self, what: str) -> InvalidArguments:
        return InvalidArguments(f"agent {self.agent}: {what}")


class Brain:
    """
    One loaded model of a guest's runtime, with queued observations and results.

    The queue holds one observation for each agent; a newer one replaces it. Results stay until the
    next execution. `memory` counts the bytes of both, and `rows` is the largest number of
    observations in the queue.
    """

    def __init__(
        self,
        runtime: int,
        network: Network,
        memory: BrainMemory,
        lease: Lease,
        demand: BrainDemand,
        *,
        rows: int,
    ) -> None:
        self.runtime = runtime
        self.network = network
        self.demand = demand
        """The demand of its guest on the network."""
        self._memory = memory
        self._lease = lease
        self._rows = rows
        self._places_of_inputs = _columns(network.inputs)
        self._width = sum(port.width for port in network.inputs)
        self._row_bytes = _FLOATS.itemsize * self._width + _ROW_BYTES
        self._submission: Submission | None = None
        self._queue: dict[int, Floats] = {}
        self._places: dict[int, int] = {}
        self._results: Mapping[str, Floats] = {}
        self._result_bytes = 0

    def use(self, network: Network) -> bool:
        """
        Use another network with the same ports from the next execution on.

        Returns False if agents begin with recurrent states of zeros, because old states do not fit.
        """
        has_states = network.take_from(self.network)
        self.network = network
        self._lease.recount(network.session_bytes)
        return has_states

    @property
    def queued(self) -> int:
        return len(self._queue)

    @property
    def agents(self) -> list[int]:
        """Agents that the last execution answered."""
        return list(self._places)

    def begin(self, agent: int) -> None:
        """
        Start an observation for an agent, dropping an unfinished one. `end` raises any errors.
        """
        if self._submission is not None:
            self._drop_submission()
        self._submission = submission = Submission(agent, self._places_of_inputs)
        try:
            self._memory.take_observations(self._row_bytes)
        except AbiError as error:
            submission.fault = error.with_traceback(None)  # which would keep this brain alive
        else:
            submission.row = np.empty(self._width, _FLOATS)

    def add(self, name: str, floats: Floats) -> None:
        """Add one input, float32, [width], to the observation that was begun."""
        if self._submission is None:
            raise InvalidArguments(f"input {name[:80]!r} outside of a submission")
        self._submission.add(name, floats)

    def end(self) -> None:
        """
        Queue the observation, or drop it and raise its error.

        Raises InvalidArguments for inputs that do not fit the model, TooManyRows and
        GuestMemoryFull for an observation beyond the limits.
        """
        submission = self._submission
        if submission is None:
            raise InvalidArguments("a submission was ended that was not begun")
        try:
            row = submission.complete()
            if submission.agent not in self._queue and len(self._queue) >= self._rows:
                raise TooManyRows(f"{len(self._queue)} agents are queued for one brain")
        except AbiError:
            self._drop_submission()
            raise
        self._submission = None
        if submission.agent in self._queue:
            self._memory.give_back_observations(self._row_bytes)  # of the older one
        self._queue[submission.agent] = row

    def run(self, room: int) -> list[int]:
        """
        Run the model for the first `room` agents of the queue; remove and return these agents.

        They are also removed if it raises: GuestMemoryFull if there is no memory for the results,
        Unavailable if the model fails.
        """
        waiting = list(self._queue.items())
        agents = [agent for agent, _ in waiting[:room]]
        inputs = self._inputs([row for _, row in waiting[:room]])
        self._queue = dict(waiting[room:])  # a new one: the old one keeps room for all agents
        self.forget_results()
        del waiting  # the results may have the memory of these observations
        size = self._bytes_of_results(len(agents))
        self._memory.exchange(self._row_bytes * len(agents), size)
        self._result_bytes = size
        try:
            self._results = self.network.run(np.array(agents, np.uint64), inputs)
        except BaseException:
            self.forget_results()
            raise
        self._places = {agent: place for place, agent in enumerate(agents)}
        return agents

    def forget_results(self) -> None:
        """Free the results of the last execution."""
        self._places = {}
        self._results = {}
        self._memory.give_back(self._result_bytes)
        self._result_bytes = 0

    def save(self) -> BrainQueue:
        """Return a copy of the observations and the results."""
        queued, answered = len(self._queue), len(self._places)
        rows = np.array(list(self._queue.values()), _FLOATS).reshape(queued, self._width)
        results = {
            name: floats.reshape(answered, -1).copy() for name, floats in self._results.items()
        }
        return BrainQueue(
            None if self._submission is None else self._submission.save(),
            np.array(list(self._queue), np.uint64),
            rows,
            np.array(list(self._places), np.uint64),
            results,
        )

    def load(self, saved: BrainQueue) -> None:
        """
        Replace observations and results by saved ones.

        Raises StateRefused if they are of another model, TooManyRows and GuestMemoryFull.
        """
        self._drop_rows()
        begun, queued, rows, answered, results = saved
        widths = {port.name: port.width for port in self.network.outputs} if len(answered) else {}
        fits = {name: floats.shape[1] for name, floats in results.items()} == widths
        if begun is not None and begun.row is not None:
            fits &= len(begun.row) == self._width and {*begun.given} <= {*self._places_of_inputs}
        if not fits or rows.shape[1] != self._width:
            raise StateRefused("the saved content of a brain does not fit its model")
        if len(queued) > self._rows:
            raise TooManyRows(f"{len(queued)} agents are queued for one brain")
        if begun is not None:
            if begun.row is not None:
                self._memory.take_observations(self._row_bytes)
            self._submission = Submission.of(begun, self._places_of_inputs)
        for agent, row in zip(queued.tolist(), rows, strict=True):
            self._memory.take_observations(self._row_bytes)
            self._queue[agent] = row.copy()
        if len(answered):
            size = self._bytes_of_results(len(answered))
            self._memory.take(size)
            self._result_bytes = size
            shapes = {port.name: port.shape for port in self.network.outputs}
            self._results = {
                name: floats.reshape(len(answered), *shapes[name])
                for name, floats in results.items()
            }
            self._places = {agent: place for place, agent in enumerate(answered.tolist())}

    def close(self) -> None:
        """Free the queue and the results, and release the model. Call it once."""
        self._lease.release()
        self._drop_rows()

    def _drop_rows(self) -> None:
        self._drop_submission()
        self._memory.give_back_observations(self._row_bytes * len(self._queue))
        self._queue = {}
        self.forget_results()

    def has_result(self, agent: int) -> bool:
        return agent in self._places

    def output(self, agent: int, slot: int) -> Floats:
        """Return one output of the last execution for one agent: float32, [width]."""
        port = port_at(self.network.outputs, slot)
        if agent not in self._places:
            raise NotFound(f"the last execution did not answer agent {agent}")
        row: Floats = self._results[port.name][self._places[agent]].reshape(-1)
        return row

    def _inputs(self, rows: Sequence[Floats]) -> dict[str, Floats]:
        """Return the inputs of observations, float32, [n, *shape] each, by the names of ports."""
        if len(self.network.inputs) == 1:
            (port,) = self.network.inputs
            return {port.name: np.concatenate(rows).reshape(len(rows), *port.shape)}
        places = self._places_of_inputs.values()
        return {
            port.name: np.concatenate([row[place] for row in rows]).reshape(len(rows), *port.shape)
            for port, place in zip(self.network.inputs, places, strict=True)
        }

    def _bytes_of_results(self, agents: int) -> int:
        outputs = self.network.outputs
        row = _FLOATS.itemsize * sum(port.width for port in outputs) + _PLACE_BYTES
        return agents * row + len(outputs) * _ARRAY_BYTES

    def _drop_submission(self) -> None:
        submission, self._submission = self._submission, None
        if submission is not None and submission.row is not None:
            self._memory.give_back_observations(self._row_bytes)


def _columns(ports: Sequence[Port]) -> dict[str, slice]:
    """Return the columns of each input in an observation, by the name that the guest knows."""
    ends = list(accumulate((port.width for port in ports), initial=0))
    return dict(zip(told_apart(ports), starmap(slice, pairwise(ends)), strict=True))


def port_at(ports: Sequence[Port], slot: int) -> Port:
    if slot >= len(ports):
        raise InvalidArguments(f"slot {slot}: the brain has {len(ports)}")
    return ports[slot]


def names_bytes(ports: Sequence[Port]) -> bytes:
    """Encode the names of `ports`: u8 count, then u8 length and UTF-8 for each."""
    names = [name.encode() for name in told_apart(ports)]
    return bytes([len(names)]) + b"".join(bytes([len(name)]) + name for name in names)


def agents_bytes(agents: Sequence[int]) -> bytes:
    """Encode agent ids: u8 count, then a u64 for each."""
    return bytes([len(agents)]) + np.array(agents, "<u8").tobytes()


def floats_bytes(floats: Floats) -> bytes:
    """Encode `floats`, float32, [n]: u8 count, then an f32 for each."""
    return bytes([len(floats)]) + floats.astype("<f4", copy=False).tobytes()
