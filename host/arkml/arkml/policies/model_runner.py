"""Runs of a model with inputs that the host provides: noise, masks and recurrent states."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from arkml.abi.codes import EpisodeState
from arkml.batches import Floats
from arkml.errors import AbiError, Unavailable
from arkml.policies.agents import GUEST_BITS, AgentTable
from arkml.policies.model import ALIKE, Call, MakesNoise, Model
from arkml.policies.noise import PinkNoise, Words, fill_normal, streams
from arkml.policies.ports import Port
from arkml.policies.roles import Roles
from arkml.policies.run_limit import RunLimit
from arkml.policies.workspace import PolicyWorkspace

Fill = Callable[[Floats, Words, Words], None]
"""Fills float32, [n, width], for the streams of agents at their steps, uint64, [n]."""

Rows = npt.NDArray[np.int64]
States = npt.NDArray[np.uint32]

Taken = Callable[[Port, Floats, Rows | None, States | None], Floats]
"""
The actions that agents take, of those in an output: float32, [n, width].

Its arguments are the output, its numbers, float32, [n, width], the rows of the batch that they are
of, None for all, and the states of their episodes, None if there are none.
"""

# As numpy's own numbers: comparing with a member of an enum costs microseconds.
_TERMINAL = np.uint32(EpisodeState.TERMINAL)
_INTERRUPTED = np.uint32(EpisodeState.INTERRUPTED)
_INITIAL = np.uint32(EpisodeState.INITIAL)

_RUNNING = ("arkml.policies.", "numpy", "onnxruntime")  # modules whose functions run models


class BoundBatch:
    """
    The arrays and functions by which one model runs on one batch.

    The object keeps alive the arrays that the functions use by address. feeds, fetches: float32,
    [count, *shape], by port name. epsilon: float32, [count, width], a view of the noise input, or
    None. `alike` names the feeds whose rows are all alike. `owner` is the `RunLimit.user` for which
    it was made.
    """

    __slots__ = (
        "__weakref__", "alike", "calls", "count", "epsilon", "feeds", "fetches", "owner",
    )  # fmt: skip

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

    def release(self) -> None:
        """Drop the arrays; the batch must then be bound again."""
        self.owner = self.epsilon = None
        self.calls, self.feeds, self.fetches = (), {}, {}


class ModelRunner:
    """
    Runs a model, and provides its noise, masks and recurrent inputs; the caller feeds the rest.

    Noise depends only on seed, session, agent id, the agent's step and the index of the number, so
    neither the order of a batch nor its other rows change a result. An agent with several rows in a
    batch takes its steps in row order.

    Args:
        deterministic: True makes the noise zero.
        pink: True makes the noise of an agent change slowly; see `noise.PinkNoise`.
        agents: A table of agents that outlives the model, with states as wide as its recurrent
            inputs.
        snapshot: Digest of the snapshot that a guest brought.
        taken: Converts the model's actions to the actions that are fed back to it.

    """

    def __init__(
        self,
        model: Model,
        roles: Roles,
        *,
        seed: int,
        deterministic: bool,
        pink: bool = False,
        workspace: PolicyWorkspace,
        agents: AgentTable | None = None,
        snapshot: bytes | None = None,
        taken: Taken | None = None,
    ) -> None:
        self.limit = RunLimit(workspace, snapshot)
        self._model = model
        self._roles = roles
        self._seed = seed
        self._fill = _noise_of(model, roles.epsilon, is_pink=pink)
        self._drawn = None if deterministic else roles.epsilon
        self._constants = [(port, 1.0) for port in roles.masks]
        if deterministic and roles.epsilon is not None:
            self._constants.append((roles.epsilon, 0.0))
        # The action that is fed back is fetched by the caller.
        self._targets = [target for _, target in roles.recurrent if target not in roles.outputs]
        self._taken = taken
        self._inputs = [source for source, _ in roles.recurrent]
        if self._drawn is not None:
            self._inputs.append(self._drawn)
        self._columns = _columns([source for source, _ in roles.recurrent])
        self._workspace = workspace
        width = sum(source.width for source, _ in roles.recurrent)
        self.agents = AgentTable(width, workspace=workspace) if agents is None else agents
        self.is_stateless = self._drawn is None and not roles.recurrent

    def bind(
        self,
        count: int,
        keys: Words,
        feeds: Mapping[str, Floats],
        fetches: Mapping[str, Floats],
        *,
        inputs: Sequence[Port] = (),
        outputs: Sequence[Port] = (),
    ) -> BoundBatch:
        """
        Bind a model to the arrays for a batch, including arrays of the host.

        The content of the host's arrays is valid for one run, because other batches may use the
        same memory. The guests of the sessions are charged for them if they brought the model.

        Args:
            keys: uint64, [] or [count], the keys of the rows' sessions.
            count: Number of rows.
            feeds: float32, [count, *shape], by port name.
            fetches: float32, [count, *shape], by port name.
            inputs: Further inputs that get arrays of the host.
            outputs: Further outputs that get arrays of the host.

        Raises:
            Unavailable: The arrays would take too much memory, or the model must not be run again;
                no array was made.

        """
        self.limit.require()
        constants = [(port, value) for port, value in self._constants if port.name not in feeds]
        self._require_room(count, constants)
        payers = _guests(keys, count) if self.limit.is_of_guest else {}
        all_feeds, all_fetches = dict(feeds), dict(fetches)
        for port, value in sorted(constants, key=lambda each: -each[0].width):  # largest first
            shape = (min(count, ALIKE), *port.shape)
            all_feeds[port.name] = self._workspace.constant(value, shape, payers)
        sources, targets = (*self._inputs, *inputs), (*self._targets, *outputs)
        shapes = [(count, *port.shape) for port in (*sources, *targets)]
        arrays = self._workspace.arrays(shapes, payers)
        for port, array in zip(sources, arrays, strict=False):
            all_feeds[port.name] = array
        for port, array in zip(targets, arrays[len(sources) :], strict=True):
            all_fetches[port.name] = array
        epsilon = None
        if self._drawn is not None:
            epsilon = all_feeds[self._drawn.name].reshape(count, self._drawn.width)
        calls = self._model.prepare(count, all_feeds, all_fetches, self.limit)
        alike = [port.name for port, _ in constants]
        return BoundBatch(self.limit.user, count, calls, all_feeds, all_fetches, epsilon, alike)

    def run(self, bound: BoundBatch, keys: Words, ids: Words, states: States | None) -> None:
        """
        Run the model on a batch whose feeds are filled.

        keys: uint64, [] or [n], the sessions' keys. ids: uint64, [n], the agents' ids. states:
        uint32, [n], the episode states, or None if there are no episodes. Raises Unavailable, and
        then no agent has advanced.
        """
        if self.is_stateless:
            execute(bound.calls)
            return
        visit = self.agents.visit(keys, ids)
        if bound.epsilon is not None:
            if visit.streams is None:
                visit.streams = streams(self._seed, keys, ids)
            self._fill(bound.epsilon, visit.streams, self.agents.steps(visit))
        recurrent = None
        if not self._roles.recurrent:
            execute(bound.calls)
        else:
            recurrent = self.agents.state(visit)
            if visit.inverse is None or visit.turns is None:
                self._run_recurrent(bound, recurrent, states)
            else:
                self._take_turns(bound, visit.inverse, visit.turns, recurrent, states)
        self.agents.advance(visit, None if states is None else _ended(states), recurrent)

    def keep(self, bound: BoundBatch) -> None:
        """Let a batch that stays bound for several runs drop its arrays when these are replaced."""
        self._workspace.add_user(bound)

    def forget(self, key: int) -> None:
        """Drop the agents of session `key`, which is closed."""
        self.agents.forget(key)

    def take_from(self, other: ModelRunner, keys: Collection[int]) -> bool:
        """
        Take over the agents of sessions `keys` from `other`, which is no longer used.

        Returns False if recurrent states do not fit, or there are none, so that agents begin with
        zeros.
        """
        shapes, others = ([s.shape for s, _ in r.recurrent] for r in (self._roles, other._roles))
        has_states = shapes == others
        if not self.is_stateless:
            self.agents.take_from(other.agents, keys, has_states=has_states)
        return has_states or not shapes

    def _require_room(self, count: int, constants: Sequence[tuple[Port, float]]) -> None:
        floats = count * sum(port.width for port in (*self._inputs, *self._targets))
        floats += min(count, ALIKE) * sum(port.width for port, _ in constants)
        self._workspace.require_batch(count, 4 * floats)

    def _run_recurrent(
        self,
        bound: BoundBatch,
        recurrent: Floats,
        states: States | None,
        rows: Rows | None = None,
    ) -> None:
        """
        Run with the states `recurrent`, float32, [n, state_width], updated in place.

        rows: the rows of the batch that these are, None for all.
        """
        if states is not None:
            recurrent[states == _INITIAL] = 0
        count = len(recurrent)
        for (source, _), columns in zip(self._roles.recurrent, self._columns, strict=True):
            bound.feeds[source.name].reshape(count, -1)[...] = recurrent[:, columns]
        execute(bound.calls)
        for (_, target), columns in zip(self._roles.recurrent, self._columns, strict=True):
            found = bound.fetches[target.name].reshape(count, -1)
            if self._taken is not None and target in self._roles.outputs:
                found = self._taken(target, found, rows, states)
            recurrent[:, columns] = found
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
        """Run the first row of every agent, then every second row, and so on."""
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
            selected = recurrent[agents]
            self._run_recurrent(part, selected, None if states is None else states[rows], rows)
            recurrent[agents] = selected
            for name, array in part.fetches.items():
                bound.fetches[name][rows] = array

    def _part(self, bound: BoundBatch, count: int) -> BoundBatch:
        feeds = {
            name: array[:count] if name in bound.alike else _like(array, count)
            for name, array in bound.feeds.items()
        }
        fetches = {name: _like(array, count) for name, array in bound.fetches.items()}
        calls = self._model.prepare(count, feeds, fetches, self.limit)
        return BoundBatch(None, count, calls, feeds, fetches, None, bound.alike)


def _noise_of(model: Model, epsilon: Port | None, *, is_pink: bool) -> Fill:
    """Return the function that fills an input with noise: the model's own, if it has one."""
    if isinstance(model, MakesNoise) and epsilon is not None:
        return partial(model.fill_noise, epsilon, is_pink=is_pink)
    return PinkNoise() if is_pink else fill_normal


def execute(calls: Sequence[Call]) -> None:
    """Run a model by its functions. Raises Unavailable if it fails."""
    try:
        for call in calls:
            call()
    except AbiError:
        raise
    except Exception as error:
        if not is_of_model(error):
            raise
        raise failed(error) from error


def is_of_model(error: Exception) -> bool:
    """Return whether an error came from running a model, and not from a signal handler."""
    place = error.__traceback__
    while place is not None:
        if not str(place.tb_frame.f_globals.get("__name__")).startswith(_RUNNING):
            return False
        place = place.tb_next
    return True


def failed(error: Exception) -> Unavailable:
    """Return the error to raise for an error within a model, most likely a lack of memory."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return Unavailable(f"the model failed: {lines[0][:300]}")


def _guests(keys: Words, count: int) -> dict[int, int]:
    """Return the number of rows of each guest. keys: uint64, [] or [count], of the sessions."""
    if not keys.ndim:
        return {int(keys) >> int(GUEST_BITS): count}
    guests, rows = np.unique(np.broadcast_to(keys, count) >> GUEST_BITS, return_counts=True)
    return dict(zip(guests.tolist(), rows.tolist(), strict=True))


def _columns(ports: Sequence[Port]) -> list[slice]:
    ends = np.cumsum([0, *(port.width for port in ports)]).tolist()
    return [slice(start, end) for start, end in pairwise(ends)]


def _like(array: Floats, count: int) -> Floats:
    return np.zeros((count, *array.shape[1:]), np.float32)


def _ended(states: States) -> npt.NDArray[np.bool_]:
    return np.asarray((states == _TERMINAL) | (states == _INTERRUPTED))
