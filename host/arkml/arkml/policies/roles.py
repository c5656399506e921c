"""The roles of a model's inputs and outputs: observations, actions and recurrent states."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, combinations
from typing import NamedTuple

from arkml.errors import InvalidArguments
from arkml.hive.protocol.parts import WHITE
from arkml.policies.port_names import (
    DESCRIPTIVE,
    Meaning,
    is_action,
    is_figure,
    is_flag,
    is_last_action,
    is_observation,
    state_name,
    without_output_number,
)
from arkml.policies.ports import Layout, Parts, Port, by_stem, listed

_MASKS = ("action_masks", "action_mask")
_MAY_ACT = (Meaning.ACTIONS, Meaning.PERHAPS, Meaning.UNKNOWN)
_MOST_BY_SHAPE = 8  # inputs among which the states are looked for by their widths

Pairs = tuple[tuple[Port, Port], ...]
"""Inputs of recurrent state, each with the output that is fed back into it."""


@dataclass(frozen=True, slots=True)
class Roles:
    """
    The ports of a model, by role.

    observations: the inputs for features. recurrent: pairs of an input and the output that is fed
    back into it. outputs: all other outputs, and actions that are fed back. adapted: observations
    whose features must be converted. rowless: names of outputs without rows.
    """

    observations: tuple[Port, ...]
    epsilon: Port | None
    masks: tuple[Port, ...]
    recurrent: Pairs
    outputs: tuple[Port, ...]
    adapted: tuple[tuple[Port, Adaptation], ...] = ()
    rowless: tuple[str, ...] = ()

    @property
    def num_features(self) -> int:
        """The number of features of one row."""
        return sum(port.width for port in self.observations)


class Adaptation(NamedTuple):
    """
    The conversion of a grid's or image's features to an input with the channels first.

    shape: the shape of one row's features. order: the order of these dimensions in the input.
    factor: a number that multiplies each value.
    """

    shape: tuple[int, ...]
    order: tuple[int, ...]
    factor: float


def find_roles(layout: Layout, num_features: int | None = None, parts: Parts = ()) -> Roles:
    """
    Find the roles of a model's ports.

    If `num_features` is known, the inputs that are left when observations have that width are
    states. Observations with the names of `parts` are in the order of these, and grids and images
    have their channels first if the model expects that. Raises InvalidArguments if the roles are
    ambiguous, if only some inputs have names of parts, or if inputs begin or end within a part.
    """
    roles = _found(layout, num_features)
    observations = _as_parts(roles.observations, parts)
    adapted = _adapted(layout, observations, parts)
    return replace(roles, observations=observations, adapted=adapted)


@lru_cache(64)  # each guest of a fleet brings the same model
def _found(layout: Layout, num_features: int | None) -> Roles:
    named = _named(layout)
    with_twins = _with_twins(layout, named)
    complete = _with_last_action(layout, with_twins)
    if num_features is None:
        roles = _roles(layout, _ordered(layout, complete))
        return roles if roles.observations else _roles(layout, ())
    candidates = [_ordered(layout, pairs) for pairs in (complete, with_twins, named, {})]
    for pairs in candidates:
        if (roles := _roles(layout, pairs)).num_features == num_features:
            return roles
    roles = _roles(layout, candidates[0])
    found = [_roles(layout, pairs) for pairs in _by_width(layout, roles, num_features)]
    found = found or [_roles(layout, pairs) for pairs in _fewer(roles, num_features)]
    if len(found) > 1:
        options = " or ".join(
            " and ".join(source.label for source, _ in one.recurrent) for one in found[:3]
        )
        raise InvalidArguments(
            f"the inputs of the model that are state could be {options}: export it with names as"
            " h_in and h_out"
        )
    return found[0] if found else roles


def find_named_roles(layout: Layout) -> Roles:
    """Find the roles of the ports of a network, which the guest addresses by name."""
    return _roles(layout, _ordered(layout, _named(layout)))


def _as_parts(observations: tuple[Port, ...], parts: Parts) -> tuple[Port, ...]:
    """Return the inputs of observations in the order of the parts, if they have their names."""
    if len(observations) < 2 or len(parts) < 2:
        return observations
    is_told_by_case = len({part.name.lower() for part in parts}) < len(parts)
    folded = str if is_told_by_case else str.lower
    names = {folded(port.label): port for port in observations}
    wanted = [folded(part.name) for part in parts]
    found = [names[name] for name in wanted if name in names]
    others = [port.label for port in observations if folded(port.label) not in wanted]
    if any(name.isdigit() for name in others):  # a number that an exporter gave
        found = []
    if found and not len(found) == len(wanted) == len(observations):
        lacking = [part.name for part in parts if folded(part.name) not in names]
        raise InvalidArguments(
            f"the model takes {listed(observations)}, and the guest declares {_listed(parts)}:"
            f" {_differing(lacking, others)}"
        )
    ordered = tuple(found) or observations
    if found and any(p.width != part.size for p, part in zip(ordered, parts, strict=True)):
        raise InvalidArguments(
            f"the model has inputs of the widths {listed(observations)}, and the guest declares"
            f" parts of these names as {_listed(parts)}"
        )
    ends = {*accumulate(part.size for part in parts)}
    within = [p for p, end in zip(ordered, accumulate(p.width for p in ordered), strict=True)
              if end not in ends]  # fmt: skip
    if within and sum(p.width for p in ordered) == max(ends):
        raise InvalidArguments(
            f"the model takes {listed(observations)} in this order, of which {within[0].label} ends"
            f" within a part of the guest's rows: {_listed(parts)}"
        )
    return ordered


def _differing(lacking: Sequence[str], others: Sequence[str]) -> str:
    """Return names that only parts, or only inputs, have, as a text for a sentence."""
    ours = f"it has no input {lacking[0]!r}" if lacking else ""
    theirs = f"the guest has no part {others[0]!r}" if others else ""
    return " and ".join(one for one in (ours, theirs) if one)


def _listed(parts: Parts) -> str:
    return ", ".join(f"{part.name}: {part.size}" for part in parts)


def _adapted(
    layout: Layout, observations: tuple[Port, ...], parts: Parts
) -> tuple[tuple[Port, Adaptation], ...]:
    """Return the inputs with the channels first, of grids and images that have them last."""
    names = [*layout.constants, *(port.name for port in layout.outputs)]
    is_of_ml_agents = any(without_output_number(name) in DESCRIPTIVE for name in names)
    starts = {part.start: part for part in parts}
    adapted, start = [], 0
    for port in observations:
        part = starts.get(start)
        start += port.width
        if part is None or part.size != port.width or part.part.kind not in ("grid", "image"):
            continue
        is_image = part.part.kind == "image"
        is_first = len(part.shape) == 3 and port.shape == (part.shape[2], *part.shape[:2])
        if is_first and port.shape != part.shape:
            factor = 1.0 / WHITE if is_image and is_of_ml_agents else 1.0
            adapted.append((port, Adaptation(part.shape, (2, 0, 1), factor)))
    return tuple(adapted)


def _roles(layout: Layout, recurrent: Pairs) -> Roles:
    fed = {source for source, _ in recurrent}
    back = {target for source, target in recurrent if not _acts(source, target)}
    free = [port for port in layout.inputs if port not in fed]
    named = by_stem(free)
    epsilon = named.get("epsilon")
    masks = tuple(port for port in free if port in [named.get(name) for name in _MASKS])
    return Roles(
        tuple(port for port in free if port != epsilon and port not in masks),
        epsilon,
        masks,
        recurrent,
        tuple(port for port in layout.outputs if port not in back),
        rowless=layout.constants,
    )


def _acts(source: Port, target: Port) -> bool:
    """Return True if the value that is fed back is the last action."""
    acts = is_action(target.name) or is_last_action(source.name)
    return acts and not is_last_action(target.name)


def _ordered(layout: Layout, pairs: dict[Port, Port]) -> Pairs:
    return tuple((port, pairs[port]) for port in layout.inputs if port in pairs)


def _named(layout: Layout) -> dict[Port, Port]:
    """Return inputs and outputs of one name and shape, but for the words for their sides."""
    pairs: dict[Port, Port] = {}
    for leniency in (0, 1, 2):
        free = [p for p in layout.inputs if p not in pairs and not is_observation(p.name)]
        sources = _by_state(free, leniency)
        paired = set(pairs.values())
        targets = _by_state((p for p in layout.outputs if p not in paired), leniency)
        for state, group in sources.items():
            twins = targets.get(state, [])
            if len(group) == len(twins) == 1 and _may_be_state(group[0], twins[0]):
                pairs[group[0]] = twins[0]
    return pairs


def _may_be_state(source: Port, target: Port) -> bool:
    """Return True unless the names say that it is the action before, or a figure as a reward."""
    return not (_acts(source, target) or is_figure(source.name) or is_figure(target.name))


def _by_state(
    ports: Iterable[Port], leniency: int
) -> dict[tuple[tuple[str, ...], tuple[int, ...]], list[Port]]:
    groups: dict[tuple[tuple[str, ...], tuple[int, ...]], list[Port]] = {}
    for port in ports:
        if name := state_name(port.name, leniency):
            groups.setdefault((name, port.shape), []).append(port)
    return groups


def _with_twins(layout: Layout, pairs: dict[Port, Port]) -> dict[Port, Port]:
    """Add the twins in the graph, as long as an observation and an output are left."""
    inputs = {port.name: port for port in layout.inputs}
    outputs = {port.name: port for port in layout.outputs}
    found = dict(pairs)
    for source, target in layout.twins:
        port, other = inputs[source], outputs[target]
        is_free = port not in found and other not in found.values()
        is_figures = is_figure(port.name) or is_figure(other.name)
        if is_free and port.shape == other.shape and not is_figures:
            found[port] = other
    is_all = len(found) == len(layout.inputs) or len(found) == len(layout.outputs)
    return pairs if is_all else found


def _with_last_action(layout: Layout, pairs: dict[Port, Port]) -> dict[Port, Port]:
    """Add the input of the last action, which is fed back from the output that acts."""
    found = dict(pairs)
    named = by_stem(layout.outputs)
    exact = [named[name] for name in ("action", "actions") if name in named]
    for source in layout.inputs:
        fitting = [p for p in layout.outputs if p.shape == source.shape]
        targets = [p for p in fitting if is_action(p.name)]
        targets = [p for p in targets if p in exact] or targets
        targets = targets or [p for p in fitting if p.meaning in _MAY_ACT]
        is_last = is_last_action(source.name) and source.meaning is Meaning.UNKNOWN
        if source not in found and is_last and len(targets) == 1:
            found[source] = targets[0]
    return pairs if len(found) == len(layout.inputs) else found


def _alike(layout: Layout, pairs: dict[Port, Port]) -> list[tuple[Port, Port]]:
    """Return the inputs and outputs that are left, whose shape one of either has."""
    sources = [
        port
        for port in layout.inputs
        if port not in pairs and not (is_figure(port.name) or is_flag(port.name))
    ]
    targets = [
        port
        for port in layout.outputs
        if port not in pairs.values() and port.meaning is Meaning.UNKNOWN
    ]
    found = []
    for source in sources:
        twins = [port for port in targets if port.shape == source.shape]
        siblings = [port for port in sources if port.shape == source.shape]
        if len(twins) == len(siblings) == 1:
            found.append((source, twins[0]))
    return found


def _fewer(roles: Roles, num_features: int) -> list[Pairs]:
    """Return the pairs without observations, such as `state` beside `next_state`."""
    pairs = roles.recurrent
    missing = num_features - roles.num_features
    if missing <= 0 or len(pairs) > _MOST_BY_SHAPE:
        return []
    found = []
    for count in range(1, len(pairs)):
        for dropped in combinations(pairs, count):
            if sum(source.width for source, _ in dropped) == missing:
                kept = tuple(pair for pair in pairs if pair not in dropped)
                found.append(kept)
    return found


def _by_width(layout: Layout, roles: Roles, num_features: int) -> list[Pairs]:
    """Return the pairs of one shape that leave as many features, and an output."""
    pairs = dict(roles.recurrent)
    alike = _alike(layout, pairs)[:_MOST_BY_SHAPE]
    surplus = roles.num_features - num_features
    found = []
    for count in range(1, len(alike) + 1):
        for chosen in combinations(alike, count):
            if sum(source.width for source, _ in chosen) == surplus:
                states = pairs | dict(chosen)
                if len(states) < min(len(layout.inputs), len(layout.outputs)):
                    found.append(_ordered(layout, states))
    return found
