"""Declarations of behaviors, parsed and checked, as all readers of them share them."""

from __future__ import annotations

import copy
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from arkml.base.files import read_file
from arkml.base.output_files import path_of
from arkml.base.short_reprs import cut_repr
from arkml.base.terminal import harmless
from arkml.base.texts import did_you_mean
from arkml.errors import InvalidSpec
from arkml.hive.protocol.parts import (
    NO_CHOICES,
    WHITE,
    Kind,
    Part,
    PlaceChoices,
    RowField,
    bound_of,
    choices_fault,
    fields_of,
    parts_fault,
)
from arkml.hive.protocol.settings import MAX_CHOICES
from arkml.hive.protocol.shown_games import ShownGame
from arkml.sessions.declared_games import GameDeclared

ANY = "*"
"""The name of the declaration for all behaviors without one of their own."""

KEY = "spec"
"""The name of the embedder's declaration, and of one in the configuration of a run."""

SECTION = "the custom section arkml.spec"

SpecLike = Mapping[str, Any] | str | os.PathLike[str] | None
"""A declaration, or the path of a JSON file that holds one."""

_MAX_BYTES = 1 << 20
_MAX_NUMBERS = 1 << 25  # of all slots: a guest declares them in a few bytes, and arrays have room
_SHOWN = 400  # characters of an error, which may name a key of any length
_MOST_NAMED = 8  # behaviors in a message
_MOST_NAMED_CHOICES = 1_024  # which pages show as a button each

MOST_COUNT = 65_536
"""The largest of the counts that a behavior declares, such as its slots."""

_Count = Annotated[int, msgspec.Meta(ge=1, le=MOST_COUNT)]
_Place = Annotated[int, msgspec.Meta(ge=0, lt=65_536)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
_Label = Annotated[str, msgspec.Meta(min_length=1, max_length=40)]
Bound = float | Annotated[list[float], msgspec.Meta(min_length=1, max_length=65_536)]
"""One bound for all values, or one for each."""


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A declaration without unknown keys."""


class PartDeclared(_Strict, frozen=True):
    """The declaration of consecutive features that form one part of an observation."""

    shape: Annotated[list[_Count], msgspec.Meta(min_length=1, max_length=8)]
    name: _Name | None = None
    kind: Kind = "vector"
    categories: Annotated[int, msgspec.Meta(ge=2, le=256)] | None = None
    low: Bound | None = None
    high: Bound | None = None
    type: Literal["default", "goal"] = "default"
    choices: PlaceChoices | None = None

    @property
    def width(self) -> int:
        """The number of features."""
        return self.part("").width

    @property
    def bounds(self) -> tuple[Bound, Bound]:
        """The declared bounds of the values, by default the bounds of the part's kind."""
        low, high = -math.inf, math.inf
        if self.kind == "image":
            low, high = 0.0, WHITE
        elif self.categories:
            low, high = 0.0, self.categories - 1.0
        return low if self.low is None else self.low, high if self.high is None else self.high

    def part(self, name: str) -> Part:
        """Return the part under this name, without its bounds."""
        choices = self.choices or NO_CHOICES
        return Part(name, tuple(self.shape), self.kind, self.categories or 0, choices)


class ActionsDeclared(_Strict, frozen=True):
    """The declaration of actions: continuous ones, followed by branches of choices."""

    continuous: _Place | None = None
    low: Bound = -1.0
    high: Bound = 1.0
    discrete: Annotated[list[_Count], msgspec.Meta(max_length=256)] = []
    names: Annotated[list[_Label], msgspec.Meta(max_length=512)] = []
    choices: Annotated[list[list[_Label]], msgspec.Meta(max_length=256)] = []

    @property
    def action_names(self) -> tuple[str, ...]:
        """The name of each action for people, continuous ones first; empty if none is declared."""
        return tuple(map(harmless, self.names))

    @property
    def choice_names(self) -> tuple[str, ...]:
        """
        The name of each choice for people, branch after branch, in the order of masks.

        A choice without a name is called by its number. Empty if no branch has names.
        """
        if not any(self.choices):
            return ()
        return tuple(
            harmless(name)
            for size, names in zip(self.discrete, self.choices, strict=True)
            for name in names or map(str, range(size))
        )

    def require_names(self, num_actions: int | None, where: str) -> None:
        """
        Raise InvalidSpec unless all of `num_actions` (None if unknown) have names, or none has.
        """
        if self.continuous is not None:
            num_actions = self.continuous + len(self.discrete)
        if self.names and num_actions not in (None, len(self.names)):
            raise InvalidSpec(
                f"{where}: {len(self.names)} names for {num_actions} actions: name each of them,"
                " first the continuous ones, then the branches"
            )
        if self.choices and len(self.choices) != len(self.discrete):
            raise InvalidSpec(
                f"{where}: choices have {len(self.choices)} lists of names for"
                f" {len(self.discrete)} branches: it takes a list for each, which may be empty"
            )
        if any(self.choices) and sum(self.discrete) > _MOST_NAMED_CHOICES:
            raise InvalidSpec(
                f"{where}: {sum(self.discrete)} choices of all branches have no room for names,"
                f" {_MOST_NAMED_CHOICES} at most: leave out choices"
            )
        for branch, (size, names) in enumerate(zip(self.discrete, self.choices, strict=False)):
            if len(names) not in (0, size):
                raise InvalidSpec(
                    f"{where}: {len(names)} names for the {size} choices of branch {branch}: name"
                    " each of them, or none"
                )

    @property
    def other_bounds(self) -> str:
        """The bounds of the first continuous action that are not [-1, 1], as "[0, 1]"; else ""."""
        if self.continuous == 0:
            return ""
        low, high = (one if isinstance(one, list) else [one] for one in (self.low, self.high))
        size = max(len(low), len(high))
        pairs = zip(low * (size // len(low)), high * (size // len(high)), strict=False)
        other = next((pair for pair in pairs if pair != (-1.0, 1.0)), None)
        return "" if other is None else f"[{other[0]:g}, {other[1]:g}]"

    def continuous_of(self, num_actions: int) -> int:
        """Return the number of continuous actions of a row with `num_actions`."""
        rest = max(0, num_actions - len(self.discrete))
        return rest if self.continuous is None else self.continuous

    def fit(self, num_actions: int | None) -> bool:
        """
        Return whether the declaration allows `num_actions` actions; None stands for any number.
        """
        return num_actions in (None, self.continuous_of(num_actions or 0) + len(self.discrete))

    def fill(self, num_actions: int | None) -> bool:
        """Return whether the declaration names all of `num_actions` actions, or none."""
        named = len(self.discrete) + (self.continuous or 0)
        return named in (0, num_actions) or num_actions is None


class BehaviorDeclared(GameDeclared, frozen=True, forbid_unknown_fields=True):
    """The declaration of a behavior: the meaning of its rows, and its game as shown to people."""

    observations: Annotated[list[PartDeclared], msgspec.Meta(max_length=256)] = msgspec.field(
        default_factory=list
    )
    actions: ActionsDeclared = ActionsDeclared()
    decision_period: _Count = 1
    slots: _Count | None = None
    positions: tuple[_Place, _Place] | None = None
    partial: bool = False
    copies: _Count | None = None

    @property
    def num_features(self) -> int | None:
        """The number of features of all declared parts, None without parts."""
        return sum(part.width for part in self.observations) if self.observations else None

    def require_fit(self, where: str, num_features: int, num_actions: int) -> None:
        """
        Raise InvalidSpec, beginning with `where`, if the declaration contradicts a row's numbers.
        """
        _require_parts(self.observations, self.actions, where)
        if self.num_features not in (None, num_features):
            raise InvalidSpec(
                f"{where}: observations of {self.num_features} features, where it has"
                f" {num_features}"
            )
        continuous = self.actions.continuous_of(num_actions)
        bounds_of(self.actions.low, self.actions.high, continuous, f"{where}, actions")
        self.actions.require_names(num_actions, f"{where}, actions")
        if not self.actions.fit(num_actions):
            raise InvalidSpec(
                f"{where}: {continuous} continuous actions and {len(self.actions.discrete)}"
                f" branches, where it has {num_actions} actions"
            )
        choices = sum(self.actions.discrete)
        if choices > MAX_CHOICES:
            raise InvalidSpec(f"{where}: {choices} choices of all branches, {MAX_CHOICES} at most")
        numbers = (self.slots or 0) * (num_features + num_actions + choices)
        if numbers > _MAX_NUMBERS:
            raise InvalidSpec(
                f"{where}: {self.slots} slots have {numbers} features, actions and choices,"
                f" {_MAX_NUMBERS} at most"
            )
        if self.positions is not None and max(self.positions) >= num_features:
            raise InvalidSpec(
                f"{where}: positions {list(self.positions)}, where it has {num_features} features"
            )
        self.game(where, num_features)

    def game(self, where: str, num_features: int) -> ShownGame | None:
        """
        Return the game as web pages show it, for rows of `num_features` features, or None.

        Raises InvalidSpec, with a message that begins with `where`.
        """
        if self.has_map and self.positions is None:
            raise InvalidSpec(
                f"{where}: targets and walls are drawn in the plane of the agents, so it needs"
                " positions as well"
            )
        return self.shown_game(self._feature_names(num_features), where)

    def _feature_names(self, num_features: int) -> dict[str, int]:
        """Return the index of each feature by the name that pages print beside it."""
        parts = parts_of(self.observations) or (Part("obs_0", (num_features,)),)
        return {
            field.name if field.size == 1 else f"{field.name} {place}": field.start + place
            for field in fields_of(parts)
            for place in range(field.size)
        }

    def fit(self, num_features: int, num_actions: int | None) -> bool:
        """Return whether the declaration fits rows with these numbers of features and actions."""
        return self.num_features in (None, num_features) and self.actions.fit(num_actions)


class _Named(_Strict, frozen=True):
    behaviors: dict[_Name, Any]


_UNKNOWN_KEY = re.compile(
    r"Object contains unknown field `(?P<key>[^`]+)`(?: - at `\$\.(?P<place>.+)`)?$"
)
_DECLARE: Mapping[str, type[msgspec.Struct]] = {
    "actions": ActionsDeclared,
    "observations": PartDeclared,
}

Behaviors = Mapping[str, BehaviorDeclared]
"""Declarations by the name of the behavior; ANY stands for all other names."""


def given_document(given: SpecLike) -> Mapping[str, Any]:
    """Return a given declaration as a JSON object, empty for None. Raises InvalidSpec."""
    if isinstance(given, str | os.PathLike):
        return document_of(_contents(path_of(given, KEY)), str(given))
    if isinstance(given, Mapping):
        return copy.deepcopy(given)
    if given is not None:
        raise InvalidSpec(
            f"{KEY} is {cut_repr(given)}: it takes a dict, or the path of a JSON file"
        )
    return {}


def document_of(data: bytes, where: str) -> Mapping[str, Any]:
    """Return the JSON object in `data`; `where` names it in errors. Raises InvalidSpec."""
    if len(data) > _MAX_BYTES:
        raise InvalidSpec(f"{where} has {len(data)} bytes: {_MAX_BYTES} at most")
    try:
        document: dict[str, Any] = msgspec.json.decode(data, type=dict[str, Any])
        # msgspec takes the last of two values of one key.
        json.loads(data, object_pairs_hook=distinct, parse_int=str, parse_float=str)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, RepeatedKey) as error:
        raise InvalidSpec(f"{where}: {str(error)[:_SHOWN]}") from error
    return document


def behavior_of(value: object, where: str) -> BehaviorDeclared:
    """
    Return the declaration of one behavior.

    Raises InvalidSpec, with a message that begins with `where`.
    """
    declared: BehaviorDeclared = _converted(value, BehaviorDeclared, where)
    _require_parts(declared.observations, declared.actions, where)
    declared.actions.require_names(None, f"{where}, actions")
    if declared.num_features is not None:
        declared.game(where, declared.num_features)
    return declared


def behaviors_of(document: Mapping[str, Any], where: str) -> Behaviors:
    """
    Return declarations by behavior: all in "behaviors" of a JSON object, or one for any behavior.

    Raises InvalidSpec, with a message that begins with `where`.
    """
    if not document:
        return {}
    if "behaviors" not in document:
        return {ANY: behavior_of(document, where)}
    named: _Named = _converted(document, _Named, where)
    return {
        name: behavior_of(declared, f"{where} for {name!r}")
        for name, declared in named.behaviors.items()
    }


def behaviors_in(section: bytes | None) -> Behaviors:
    """Return the declarations in a module's section `arkml.spec`, if any. Raises InvalidSpec."""
    return {} if section is None else behaviors_of(document_of(section, SECTION), SECTION)


def fitting(behaviors: Behaviors, num_features: int, num_actions: int | None) -> Behaviors:
    """
    Return the behaviors that fit these numbers of features and actions; None stands for any.

    Behaviors that declare all of their actions come first, before behaviors whose undeclared
    actions count as continuous.
    """
    fit = {name: one for name, one in behaviors.items() if one.fit(num_features, num_actions)}
    full = {name: one for name, one in fit.items() if one.actions.fill(num_actions)}
    return full or fit


def require_declared(behaviors: Behaviors, name: str, where: str) -> None:
    """Raise InvalidSpec if behaviors are declared, but not the one called `name`."""
    if behaviors and name not in behaviors and ANY not in behaviors:
        raise InvalidSpec(
            f"{where} declares {listed(behaviors)}, and the guest has {name!r}: declare that name,"
            f' or "{ANY}" for any other'
        )


def listed(names: Iterable[str]) -> str:
    """Return a text that lists names of behaviors, the first of many."""
    shown = [repr(name) for name in islice(names, _MOST_NAMED + 1)]
    return ", ".join([*shown[:_MOST_NAMED], "…"] if len(shown) > _MOST_NAMED else shown)


def bounds_of(
    low: Bound, high: Bound, size: int, where: str
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return lower and upper bounds for each of `size` values. Raises InvalidSpec."""
    bounds = []
    for bound in (low, high):
        values = tuple(bound) if isinstance(bound, list) else (bound,)
        if len(values) not in (1, size):
            raise InvalidSpec(f"{where}: {len(values)} bounds for {size} values")
        bounds.append(values * size if len(values) == 1 else values)
    if not all(one <= other for one, other in zip(*bounds, strict=True)):
        raise InvalidSpec(f"{where}: a lower bound is not below its upper one")
    return bounds[0], bounds[1]


def _contents(path: Path) -> bytes:
    try:
        return read_file(path)
    except OSError as error:
        raise InvalidSpec(f"{path} cannot be read: {error.strerror}") from error


class RepeatedKey(Exception):
    """An object of JSON has a key twice."""


def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """
    Return an object of JSON, as the `object_pairs_hook` of `json.loads`.

    Raises RepeatedKey if it has one key twice, such as `{"a": 1, "a": 2}`.
    """
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise RepeatedKey(f"the key {cut_repr(key)} comes twice in an object")
        values[key] = value
    return values


def parts_of(declared: Sequence[PartDeclared]) -> tuple[Part, ...]:
    """Return the parts of a row with their names; an unnamed third part is called `obs_2`."""
    return tuple(part.part(part.name or f"obs_{place}") for place, part in enumerate(declared))


def bounded_fields(
    declared: Sequence[PartDeclared],
) -> Iterator[tuple[RowField, PartDeclared, tuple[float, ...], tuple[float, ...]]]:
    """
    Yield the fields of a row, each with its part's declaration and its lower and upper bounds.

    Raises InvalidSpec.
    """
    of = dict(zip(parts_of(declared), declared, strict=True))
    for field in fields_of(of):
        one = of[field.part]
        low, high = (0.0, bound_of(field)) if field.is_count else one.bounds
        yield field, one, *bounds_of(low, high, field.size, field.name)


def _require_parts(declared: Sequence[PartDeclared], actions: ActionsDeclared, where: str) -> None:
    parts = parts_of(declared)
    if fault := parts_fault(parts) or choices_fault(parts, actions.discrete):
        raise InvalidSpec(f"{where}: {fault}")
    for part, one in zip(parts, declared, strict=True):
        bounds_of(*one.bounds, part.size, f"{where}, observation {part.name!r}")


def _converted(value: object, kind: type[msgspec.Struct], where: str) -> Any:
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        text = str(error)
        raise InvalidSpec(f"{where}: {text[:_SHOWN]}{_known_keys(text, kind)}") from error


def _known_keys(text: str, kind: type[msgspec.Struct]) -> str:
    """Return what to write for the unknown key of which an error tells; "" for other errors."""
    found = _UNKNOWN_KEY.match(text)
    if found is None:
        return ""
    place = (found["place"] or "").partition("[")[0]
    declares = kind if not place else _DECLARE.get(place)
    if declares is None:
        return ""
    names = [field.encode_name for field in msgspec.structs.fields(declares)]
    return f": {did_you_mean(found['key'], names) or 'it takes ' + ', '.join(names)}"
