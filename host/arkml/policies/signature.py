"""The roles of a model's inputs and outputs, by their names and shapes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from arkml.errors import InvalidArguments

_ACTIONS = ("actions", "action")
_SAMPLED = "continuous_actions"
_MEAN = "deterministic_continuous_actions"
_RAW = "raw_actions"
_VALUES = ("values", "value")
_MASKS = ("action_masks", "action_mask")
_DESCRIPTIVE = {
    "version_number",
    "memory_size",
    "is_continuous_control",
    "action_output_shape",
    "continuous_action_output_shape",
    "discrete_action_output_shape",
    "discrete_actions",
    "deterministic_discrete_actions",
}
"""Outputs by which ML-Agents describes a model, and actions that are not floats."""

_SIDE = re.compile(r"[._](in|out|input|output|prev|next|new)$", re.IGNORECASE)
_NUMBERED = re.compile(r"[._](\d+|n)$|(?<=^[hc])[0n]$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Port:
    """A float32 input or output of a model. `shape` is without the batch dimension."""

    name: str
    shape: tuple[int, ...]

    @property
    def width(self) -> int:
        """Floats in one row."""
        return math.prod(self.shape)

    @property
    def label(self) -> str:
        """The name without the colon and output number that TensorFlow appends."""
        return self.name.split(":", 1)[0]

    @property
    def stem(self) -> str:
        """The label in lower case without the `_0` that NNEF appends, for comparisons."""
        return self.label.lower().removesuffix("_0")


@dataclass(frozen=True, slots=True)
class Roles:
    """
    The ports of a model, by role.

    observations: the inputs that the caller feeds. recurrent: pairs of an input and the output that
    is fed back into it. outputs: all other outputs.
    """

    observations: tuple[Port, ...]
    epsilon: Port | None
    masks: tuple[Port, ...]
    recurrent: tuple[tuple[Port, Port], ...]
    outputs: tuple[Port, ...]


@dataclass(frozen=True, slots=True)
class Signature:
    """The ports that a policy uses. Features fill the observations in order."""

    roles: Roles
    actions: Port
    values: Port | None

    @property
    def num_features(self) -> int:
        """Features of one row."""
        return sum(port.width for port in self.roles.observations)

    @property
    def num_actions(self) -> int:
        """Actions of one row."""
        return self.actions.width


def find_roles(inputs: Sequence[Port], outputs: Sequence[Port]) -> Roles:
    """Find the roles of a model's ports."""
    recurrent = _recurrent(inputs, outputs)
    fed_back = {port for pair in recurrent for port in pair}
    free = [port for port in inputs if port not in fed_back]
    epsilon = next((port for port in free if port.stem == "epsilon"), None)
    masks = tuple(port for port in free if port.stem in _MASKS)
    return Roles(
        tuple(port for port in free if port != epsilon and port not in masks),
        epsilon,
        masks,
        recurrent,
        tuple(port for port in outputs if port not in fed_back),
    )


def find_signature(
    roles: Roles,
    num_features: int | None,
    num_actions: int | None,
    *,
    deterministic: bool,
    raw: bool = False,
) -> Signature:
    """
    Find the ports of a policy for `num_features` and `num_actions`.

    None takes the number that the model has. With `raw` the actions are `raw_actions`, which are
    not clipped, where the model has them. Raises InvalidArguments if the model does not fit.
    """
    width = sum(port.width for port in roles.observations)
    if num_features is not None and width != num_features:
        raise InvalidArguments(
            f"the model takes {width} features ({_listed(roles.observations)}),"
            f" {num_features} are given"
        )
    actions = next((port for port in roles.outputs if raw and port.stem == _RAW), None)
    if actions is None or actions.width != num_actions:
        actions = _actions(roles.outputs, num_actions, deterministic=deterministic)
    if roles.epsilon is not None and roles.epsilon.width != actions.width:
        raise InvalidArguments(
            f"the model takes epsilon of width {roles.epsilon.width} for {actions.width} actions"
        )
    return Signature(roles, actions, _values(roles.outputs, actions))


def _recurrent(inputs: Sequence[Port], outputs: Sequence[Port]) -> tuple[tuple[Port, Port], ...]:
    pairs: dict[Port, Port] = {}
    for leniency in (0, 1, 2):
        sources = _by_state((p for p in inputs if p not in pairs), leniency)
        paired = set(pairs.values())
        targets = _by_state((p for p in outputs if p not in paired), leniency)
        for state, group in sources.items():
            match group, targets.get(state, []):
                case [source], [target] if target.stem not in (*_ACTIONS, _SAMPLED, _MEAN):
                    pairs[source] = target
    return tuple((port, pairs[port]) for port in inputs if port in pairs)


def _by_state(
    ports: Iterable[Port], leniency: int
) -> dict[tuple[str, tuple[int, ...]], list[Port]]:
    groups: dict[tuple[str, tuple[int, ...]], list[Port]] = {}
    for port in ports:
        groups.setdefault((_state_name(port, leniency), port.shape), []).append(port)
    return groups


def _state_name(port: Port, leniency: int) -> str:
    """Return the name without `_in` or `_out`, at leniency 2 also without numbers: `h_0`, `hn`."""
    name = port.label.lower()
    if leniency >= 1:
        name = _SIDE.sub("", name)
    if leniency >= 2:
        name = _NUMBERED.sub("", name)
    return name


def _actions(outputs: Sequence[Port], wanted: int | None, *, deterministic: bool) -> Port:
    fitting = [
        port
        for port in outputs
        if port.stem not in _DESCRIPTIVE and (wanted is None or port.width == wanted)
    ]
    named = {port.stem: port for port in reversed(fitting)}
    agents = (_MEAN, _SAMPLED) if deterministic else (_SAMPLED, _MEAN)
    for name in (*_ACTIONS, *agents):
        if name in named:
            return named[name]
    unnamed = [port for port in fitting if port.stem not in _VALUES]
    if wanted is None:
        # Of two outputs the one of width 1 is the value, if only one of them has it.
        unnamed = [port for port in unnamed if port.width != 1] or unnamed
    if len(unnamed) == 1 or (len(unnamed) == 2 and unnamed[0].width == 1):
        return unnamed[0]
    count = "actions" if wanted is None else f"{wanted} actions"
    if not unnamed:
        raise InvalidArguments(f"the model has no output of {count}, only {_listed(outputs)}")
    raise InvalidArguments(
        f"the model has {len(unnamed)} outputs that could be the {count} ({_listed(unnamed)}),"
        f" and none is called actions"
    )


def _values(outputs: Sequence[Port], actions: Port) -> Port | None:
    known = {*_DESCRIPTIVE, _SAMPLED, _MEAN, _RAW}
    rest = [p for p in outputs if p != actions and p.width == 1 and p.stem not in known]
    named = [port for port in rest if port.stem in _VALUES]
    if named:
        return named[0]
    return rest[0] if len(rest) == 1 else None


def _listed(ports: Iterable[Port]) -> str:
    return ", ".join(f"{port.label}: {port.width}" for port in ports) or "none"
