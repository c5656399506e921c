"""Brains: loaded models with named inputs, and the observations queued for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from arkml.batches import Floats
from arkml.errors import InvalidArguments, ModelRejected, NotFound, TooManyRows
from arkml.policies.network import Network
from arkml.policies.signature import Port
from arkml.sessions.leases import Lease

COUNTABLE = 0xFF
"""Longest list of names, agents, or floats of one output: its length is a u8."""

MAX_DIMENSIONS = 8


class Budget:
    """The bytes that may be queued in all brains of a guest together."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0

    def take(self, size: int) -> None:
        if self._used + size > self._limit:
            raise TooManyRows(f"{self._used + size} bytes queued, the limit is {self._limit}")
        self._used += size

    def give_back(self, size: int) -> None:
        self._used -= size


def require_countable(network: Network) -> None:
    """Raise ModelRejected for a model that ml-inference-v0 cannot describe to a guest."""
    for ports, kind in ((network.inputs, "inputs"), (network.outputs, "outputs")):
        if len(ports) > COUNTABLE:
            raise ModelRejected(f"{len(ports)} {kind}, the limit is {COUNTABLE}")
        for name, port in zip(names_of(ports), ports, strict=True):
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


class Submission:
    """One agent's observation, given input by input."""

    def __init__(self, agent: int) -> None:
        self.agent = agent
        self._items: dict[str, Floats] = {}
        self._fault: str | None = None

    def add(self, port: Port | None, name: str, floats: Floats) -> None:
        """Keep one input: float32, [width]. A fault in it is raised by `complete`."""
        if port is None:
            self._fault = f"there is no input {name[:80]!r}"
        elif len(floats) != port.width:
            self._fault = f"input {name}: expected {port.width} floats, got {len(floats)}"
        else:
            self._items[name] = floats

    def complete(self, names: Collection[str]) -> list[Floats]:
        """
        Return the inputs, float32, [width] each, in the order of `names`.

        Raises InvalidArguments for a missing, unknown or wrong-sized input.
        """
        if self._fault is not None:
            raise InvalidArguments(f"agent {self.agent}: {self._fault}")
        missing = [name for name in names if name not in self._items]
        if missing:
            raise InvalidArguments(f"agent {self.agent}: {', '.join(missing)} missing")
        return [self._items[name] for name in names]


class Brain:
    """
    One loaded model of one runtime.

    The queue holds one observation for each agent; a newer one replaces it. The results are
    those of the last execution.
    """

    def __init__(
        self, runtime: int, network: Network, budget: Budget, lease: Lease, *, rows: int
    ) -> None:
        self.runtime = runtime
        self.network = network
        self._ports = dict(zip(names_of(network.inputs), network.inputs, strict=True))
        self._budget = budget
        self._lease = lease
        self._rows = rows
        self._row_bytes = 4 * sum(port.width for port in network.inputs) + 64
        self._submission: Submission | None = None
        self._queue: dict[int, list[Floats]] = {}
        self._places: dict[int, int] = {}
        self._results: Mapping[str, Floats] = {}

    @property
    def queued(self) -> int:
        return len(self._queue)

    @property
    def agents(self) -> list[int]:
        """Agents that the last execution answered."""
        return list(self._places)

    def begin(self, agent: int) -> None:
        """Start an observation and drop one that was not ended."""
        self._submission = Submission(agent)

    def add(self, name: str, floats: Floats) -> None:
        """Add one input, float32, [width], to the observation that was begun."""
        if self._submission is None:
            raise InvalidArguments(f"input {name[:80]!r} outside of a submission")
        self._submission.add(self._ports.get(name), name, floats)

    def end(self) -> None:
        """Queue the observation, or drop it and raise its fault."""
        submission, self._submission = self._submission, None
        if submission is None:
            raise InvalidArguments("a submission was ended that was not begun")
        items = submission.complete(self._ports)
        if submission.agent not in self._queue:
            if len(self._queue) >= self._rows:
                raise TooManyRows(f"{len(self._queue)} agents are queued for one brain")
            self._budget.take(self._row_bytes)
        self._queue[submission.agent] = items

    def run(self, room: int) -> list[int]:
        """Run the model for the first `room` agents of the queue, remove and return them."""
        agents = list(self._queue)[:room]
        rows = [self._queue.pop(agent) for agent in agents]
        self._budget.give_back(self._row_bytes * len(agents))
        inputs = {
            port.name: np.stack([row[place] for row in rows]).reshape(len(rows), *port.shape)
            for place, port in enumerate(self.network.inputs)
        }
        self._results = self.network.run(np.array(agents, np.uint64), inputs)
        self._places = {agent: place for place, agent in enumerate(agents)}
        return agents

    def forget_results(self) -> None:
        self._places = {}
        self._results = {}

    def close(self) -> None:
        """Clear the queue and release the snapshot."""
        self._lease.release()
        self._budget.give_back(self._row_bytes * len(self._queue))
        self._queue.clear()

    def has_result(self, agent: int) -> bool:
        return agent in self._places

    def output(self, agent: int, slot: int) -> Floats:
        """Return one output of the last execution for one agent: float32, [width]."""
        port = port_at(self.network.outputs, slot)
        if agent not in self._places:
            raise NotFound(f"the last execution did not answer agent {agent}")
        row: Floats = self._results[port.name][self._places[agent]].reshape(-1)
        return row


def port_at(ports: Sequence[Port], slot: int) -> Port:
    if slot >= len(ports):
        raise InvalidArguments(f"slot {slot}: the brain has {len(ports)}")
    return ports[slot]


def names_of(ports: Sequence[Port]) -> list[str]:
    """Return the names by which a guest knows the ports: their labels, if these are unique."""
    labels = [port.label for port in ports]
    return labels if len(set(labels)) == len(labels) else [port.name for port in ports]


def names_bytes(ports: Sequence[Port]) -> bytes:
    """Encode the names of `ports`: u8 count, then u8 length and UTF-8 for each."""
    names = [name.encode() for name in names_of(ports)]
    return bytes([len(names)]) + b"".join(bytes([len(name)]) + name for name in names)


def agents_bytes(agents: Sequence[int]) -> bytes:
    """Encode agent ids: u8 count, then a u64 for each."""
    return bytes([len(agents)]) + np.array(agents, "<u8").tobytes()


def floats_bytes(floats: Floats) -> bytes:
    """Encode `floats`, float32, [n]: u8 count, then an f32 for each."""
    return bytes([len(floats)]) + floats.astype("<f4", copy=False).tobytes()
