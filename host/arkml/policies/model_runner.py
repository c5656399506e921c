"""Runs of a model with all that a host adds to it: noise, masks and recurrent state."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from arkml.abi.codes import EpisodeState
from arkml.batches import Floats
from arkml.errors import AbiError, Unavailable
from arkml.policies.agents import AgentTable
from arkml.policies.model import ALIKE, Call, Model
from arkml.policies.noise import Words, fill_normal, streams
from arkml.policies.signature import Port, Roles
from arkml.policies.workspace import PolicyWorkspace

Rows = npt.NDArray[np.int64]
States = npt.NDArray[np.uint32]

# As numpy's own numbers: comparing with a member of an enum costs microseconds.
_TERMINAL = np.uint32(EpisodeState.TERMINAL)
_INTERRUPTED = np.uint32(EpisodeState.INTERRUPTED)
_INITIAL = np.uint32(EpisodeState.INITIAL)


class BoundBatch:
    """
    Everything one model needs to run on one batch: arrays by port name, and the calls.

    It keeps the arrays alive that the calls use by address. `alike` names the feeds whose rows
    are all alike.
    """

    __slots__ = ("alike", "calls", "count", "epsilon", "feeds", "fetches", "owner")

    def __init__(
        self,
        owner: object,
        count: int,
        calls: Sequence[Call],
        feeds: Mapping[str, Floats],
        fetches: Mapping[str, Floats],
        epsilon: Floats | None,
        alike: Collection[str] = (),
    ) -> None:
        self.owner = owner
        self.count = count
        self.calls = calls
        self.feeds = feeds
        self.fetches = fetches
        self.epsilon = epsilon
        self.alike = alike


class ModelRunner:
    """
    Feeds a model's epsilon, masks and recurrent inputs; the rest comes from its user.

    Noise depends on (seed, session, agent id, agent's step, index) and nothing else, so results
    depend neither on the order of a batch nor on who else is in it. `deterministic` makes it
    zero. An agent that comes twice in a batch takes its steps in row order. `agents` is a table
    that outlives the model, which then may have no recurrent inputs.
    """

    def __init__(
        self,
        model: Model,
        roles: Roles,
        *,
        seed: int,
        deterministic: bool,
        workspace: PolicyWorkspace,
        agents: AgentTable | None = None,
    ) -> None:
        self._model = model
        self._roles = roles
        self._seed = seed
        self._drawn = None if deterministic else roles.epsilon
        self._constants = [(port, 1.0) for port in roles.masks]
        if deterministic and roles.epsilon is not None:
            self._constants.append((roles.epsilon, 0.0))
        self._targets = [target for _, target in roles.recurrent]
        self._inputs = [source for source, _ in roles.recurrent]
        if self._drawn is not None:
            self._inputs.append(self._drawn)
        self._columns = _columns([source for source, _ in roles.recurrent])
        self._workspace = workspace
        width = sum(source.width for source, _ in roles.recurrent)
        self._agents = AgentTable(width, workspace=workspace) if agents is None else agents
        self.is_stateless = self._drawn is None and not roles.recurrent

    def bind(
        self, count: int, feeds: Mapping[str, Floats], fetches: Mapping[str, Floats], owner: object
    ) -> BoundBatch:
        """
        Add the host's arrays and make the calls.

        Raises Unavailable, before there is any array, if they would take too much recurrent. What
        they hold lasts for one run: the arrays of other bound may lie in the same place.
        """
        constants = [(port, value) for port, value in self._constants if port.name not in feeds]
        self._require_room(count, constants)
        given, taken = dict(feeds), dict(fetches)
        for port, value in constants:
            shape = (min(count, ALIKE), *port.shape)
            given[port.name] = self._workspace.constant(value, shape)
        ports = (*self._inputs, *self._targets)
        arrays = self._workspace.arrays([(count, *port.shape) for port in ports])
        for port, array in zip(self._inputs, arrays, strict=False):
            given[port.name] = array
        for port, array in zip(self._targets, arrays[len(self._inputs) :], strict=True):
            taken[port.name] = array
        epsilon = None
        if self._drawn is not None:
            epsilon = given[self._drawn.name].reshape(count, self._drawn.width)
        calls = self._model.prepare(count, given, taken)
        alike = [port.name for port, _ in constants]
        return BoundBatch(owner, count, calls, given, taken, epsilon, alike)

    def run(self, bound: BoundBatch, keys: Words, ids: Words, states: States | None) -> None:
        """
        Run on rows whose feeds are filled.

        keys: uint64, [] or [n]. ids: uint64, [n]. states: uint32, [n], or None where there are no
        episodes. Raises Unavailable, and then no agent has moved on.
        """
        if self.is_stateless:
            execute(bound.calls)
            return
        visit = self._agents.visit(keys, ids)
        if bound.epsilon is not None:
            if visit.streams is None:
                visit.streams = streams(self._seed, keys, ids)
            fill_normal(bound.epsilon, visit.streams, self._agents.steps(visit))
        recurrent = None
        if not self._roles.recurrent:
            execute(bound.calls)
        else:
            recurrent = self._agents.state(visit)
            if visit.inverse is None or visit.turns is None:
                self._run_recurrent(bound, recurrent, states)
            else:
                self._take_turns(bound, visit.inverse, visit.turns, recurrent, states)
        self._agents.advance(visit, None if states is None else _ended(states), recurrent)

    def forget(self, key: int) -> None:
        """Session `key` is closed."""
        self._agents.forget(key)

    def _require_room(self, count: int, constants: Sequence[tuple[Port, float]]) -> None:
        floats = count * sum(port.width for port in (*self._inputs, *self._targets))
        floats += min(count, ALIKE) * sum(port.width for port, _ in constants)
        self._workspace.require_batch(count, 4 * floats)

    def _run_recurrent(self, bound: BoundBatch, recurrent: Floats, states: States | None) -> None:
        """Run with the states in `recurrent`, [n, state_width], and put the new ones there."""
        if states is not None:
            recurrent[states == _INITIAL] = 0
        count = len(recurrent)
        for (source, _), columns in zip(self._roles.recurrent, self._columns, strict=True):
            bound.feeds[source.name].reshape(count, -1)[...] = recurrent[:, columns]
        execute(bound.calls)
        for (_, target), columns in zip(self._roles.recurrent, self._columns, strict=True):
            recurrent[:, columns] = bound.fetches[target.name].reshape(count, -1)
        if states is not None:
            recurrent[_ended(states)] = 0

    def _take_turns(
        self,
        bound: BoundBatch,
        inverse: Rows,
        turns: Rows,
        recurrent: Floats,
        states: States | None,
    ) -> None:
        """Run the first row of every agent, then the second ones, and so on."""
        order = np.argsort(turns, kind="stable")
        ends = np.cumsum(np.bincount(turns))
        part = self._part(bound, int(ends[0]))
        for rows in np.split(order, ends[:-1]):
            if part.count != len(rows):
                part = self._part(bound, len(rows))
            for name, array in part.feeds.items():
                if name not in part.alike:
                    np.take(bound.feeds[name], rows, axis=0, out=array)
            agents = inverse[rows]
            moved = recurrent[agents]
            self._run_recurrent(part, moved, None if states is None else states[rows])
            recurrent[agents] = moved
            for name, array in part.fetches.items():
                bound.fetches[name][rows] = array

    def _part(self, bound: BoundBatch, count: int) -> BoundBatch:
        feeds = {
            name: array[:count] if name in bound.alike else _like(array, count)
            for name, array in bound.feeds.items()
        }
        fetches = {name: _like(array, count) for name, array in bound.fetches.items()}
        calls = self._model.prepare(count, feeds, fetches)
        return BoundBatch(None, count, calls, feeds, fetches, None, bound.alike)


def execute(calls: Sequence[Call]) -> None:
    """Run a model. Raises Unavailable if it fails."""
    try:
        for call in calls:
            call()
    except AbiError:
        raise
    except Exception as error:
        raise failed(error) from error


def failed(error: Exception) -> Unavailable:
    """What to raise for an error inside of a model's run: it ran out of recurrent, most likely."""
    return Unavailable(f"the model failed: {str(error).strip().splitlines()[0][:300]}")


def _columns(ports: Sequence[Port]) -> list[slice]:
    ends = np.cumsum([0, *(port.width for port in ports)]).tolist()
    return [slice(start, end) for start, end in pairwise(ends)]


def _like(array: Floats, count: int) -> Floats:
    return np.zeros((count, *array.shape[1:]), np.float32)


def _ended(states: States) -> npt.NDArray[np.bool_]:
    return np.asarray((states == _TERMINAL) | (states == _INTERRUPTED))
