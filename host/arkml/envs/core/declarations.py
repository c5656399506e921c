"""Declarations of behaviors: their sources, and the checks of them."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from arkml.envs.core.specs import Actions, Bounds, Part, Spec
from arkml.errors import InvalidSettings, InvalidSpec
from arkml.hive.protocol.settings import guest_settings

Declaring = Mapping[str, Any] | str | os.PathLike[str] | None
"""A declaration, or the path of a JSON file that holds one."""

KEY = "spec"
_ANY = "*"
_MAX_BYTES = 1 << 20
_KEPT_CHARACTERS = 4_096  # of a configuration, for the next instance

_Count = Annotated[int, msgspec.Meta(ge=1, le=65_536)]
_Place = Annotated[int, msgspec.Meta(ge=0, lt=65_536)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
_Bound = float | Annotated[list[float], msgspec.Meta(min_length=1, max_length=65_536)]


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A declaration without unknown keys."""


class _PartDeclared(_Strict, frozen=True):
    shape: Annotated[list[_Count], msgspec.Meta(min_length=1, max_length=8)]
    name: _Name | None = None
    low: _Bound = -math.inf
    high: _Bound = math.inf
    type: Literal["default", "goal"] = "default"


class _ActionsDeclared(_Strict, frozen=True):
    continuous: _Place | None = None
    low: _Bound = -1.0
    high: _Bound = 1.0
    discrete: Annotated[list[_Count], msgspec.Meta(max_length=256)] = []


class _BehaviorDeclared(_Strict, frozen=True):
    observations: Annotated[list[_PartDeclared], msgspec.Meta(max_length=256)] = []
    actions: _ActionsDeclared = _ActionsDeclared()
    decision_period: _Count = 1
    slots: _Count | None = None
    positions: tuple[_Place, _Place] | None = None


class _Named(_Strict, frozen=True):
    behaviors: dict[str, _BehaviorDeclared]


class Declarations:
    """
    Declarations of behaviors: the embedder's, else the module's, else the experiment's.

    `given` is the embedder's, `section` the contents of the module's custom section `arkml.spec`.
    Both are an object whose "behaviors" maps names, or "*", to declarations; or one declaration for
    all behaviors. Raises InvalidSpec.
    """

    def __init__(self, given: Declaring, section: bytes | None) -> None:
        self.given: Mapping[str, Any] = {}
        """The declaration of the embedder, as an object of JSON."""
        if isinstance(given, str | os.PathLike):
            self.given = _document(_contents(Path(given)), str(given))
        elif given is not None:
            self.given = copy.deepcopy(given)
        self._named = _by_name(self.given, KEY)
        self._sources = [(KEY, self._named)]
        if section is not None:
            where = "the custom section arkml.spec"
            self._sources.append((where, _by_name(_document(section, where), where)))
        self._known: tuple[tuple[str, int, int, str], Spec] | None = None

    def of(self, name: str, num_features: int, num_actions: int, configuration: str = "") -> Spec:
        """Return the spec of a behavior. Raises InvalidSpec if it contradicts the widths."""
        asked = name, num_features, num_actions, configuration
        if self._known is not None and self._known[0] == asked:  # as all instances ask
            return self._known[1]
        spec = self._of(*asked)
        self._known = (asked, spec) if len(configuration) <= _KEPT_CHARACTERS else None
        return spec

    def _of(self, name: str, num_features: int, num_actions: int, configuration: str) -> Spec:
        widths = num_features, num_actions
        for where, source in self._sources:
            declared = source.get(name, source.get(_ANY))
            if declared is not None:
                return _fitted(declared, f"{where} for {name!r}", *widths)
        try:
            own = guest_settings(configuration).get(KEY)
        except InvalidSettings as error:
            raise InvalidSpec(str(error)) from error
        if own is None:
            return Spec.plain(*widths)
        where = f"{KEY} in the configuration of {name!r}"
        return _fitted(_converted(own, _BehaviorDeclared, where), where, *widths)


def _contents(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidSpec(f"{path} cannot be read: {error.strerror}") from error


def _document(data: bytes, where: str) -> Mapping[str, Any]:
    if len(data) > _MAX_BYTES:
        raise InvalidSpec(f"{where} has {len(data)} bytes: {_MAX_BYTES} at most")
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidSpec(f"{where}: {error}") from error


def _converted(value: Any, kind: type[Any], where: str) -> Any:
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise InvalidSpec(f"{where}: {error}") from error


def _by_name(document: Mapping[str, Any], where: str) -> Mapping[str, _BehaviorDeclared]:
    if not document:
        return {}
    if "behaviors" not in document:
        return {_ANY: _converted(document, _BehaviorDeclared, where)}
    named: _Named = _converted(document, _Named, where)
    return named.behaviors


def _fitted(declared: _BehaviorDeclared, where: str, num_features: int, num_actions: int) -> Spec:
    """Return the spec of a declaration for these widths. Raises InvalidSpec."""
    plain = Spec.plain(num_features, num_actions)
    parts = _parts(declared.observations, where) or plain.observations
    if (size := sum(part.size for part in parts)) != num_features:
        raise InvalidSpec(f"{where}: observations of {size} features, where it has {num_features}")
    spec = declared.actions
    continuous = spec.continuous
    if continuous is None:
        continuous = max(0, num_actions - len(spec.discrete))
    low, high = _bounds(spec.low, spec.high, continuous, f"{where}, actions")
    actions = Actions(continuous, low, high, tuple(spec.discrete))
    if actions.width != num_actions:
        raise InvalidSpec(
            f"{where}: {continuous} continuous actions and {len(actions.branches)} branches, where"
            f" it has {num_actions} actions"
        )
    if declared.positions is not None and max(declared.positions) >= num_features:
        raise InvalidSpec(
            f"{where}: positions {list(declared.positions)}, where it has {num_features} features"
        )
    return Spec(parts, actions, declared.decision_period, declared.slots, declared.positions)


def _parts(declared: Sequence[_PartDeclared], where: str) -> tuple[Part, ...]:
    parts = []
    for place, part in enumerate(declared):
        name = part.name or f"obs_{place}"
        size = math.prod(part.shape)
        low, high = _bounds(part.low, part.high, size, f"{where}, observation {name!r}")
        parts.append(Part(name, tuple(part.shape), low, high, part.type == "goal"))
    if len({part.name for part in parts}) < len(parts):
        raise InvalidSpec(f"{where}: two observations have one name")
    return tuple(parts)


def _bounds(low: _Bound, high: _Bound, size: int, where: str) -> tuple[Bounds, Bounds]:
    """Return lower and upper bounds of `size` values. Raises InvalidSpec."""
    bounds = []
    for bound in (low, high):
        values = tuple(bound) if isinstance(bound, list) else (bound,)
        if len(values) not in (1, size):
            raise InvalidSpec(f"{where}: {len(values)} bounds for {size} values")
        bounds.append(values * size if len(values) == 1 else values)
    if not all(one <= other for one, other in zip(*bounds, strict=True)):
        raise InvalidSpec(f"{where}: a lower bound is not below its upper one")
    return bounds[0], bounds[1]
