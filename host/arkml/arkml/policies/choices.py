"""Policies of the embedder for particular sessions, chosen by name or by shape."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import TypeAlias

from arkml.base.loggers import SafeLogger
from arkml.base.short_reprs import cut_repr
from arkml.errors import InvalidArguments, UsageError
from arkml.limits import whole_number
from arkml.policies.given import ObjectPolicy, PolicyFunction
from arkml.policies.policy_files import PolicyFile

Given: TypeAlias = PolicyFile | ObjectPolicy | PolicyFunction
"""A policy of the embedder, checked."""

log = SafeLogger(__name__)

_ALIKE = 0.8  # of names that one letter tells apart
_MOST_DOUBTED = 1_000
_DIGITS = re.compile(r"\d+")
_SUFFIXES = (".wasm", ".wat")  # that names of guests may have and their policies need not
_WAYS = "it takes the name of a behavior or a guest, as 'goblin', or a shape, as (8, 3)"


class PolicyChoices:
    """
    Policies by the name of a behavior or a guest, or by numbers of features and actions.

    Behaviors are declared by a guest in the section `arkml.spec`. Raises UsageError for keys that
    are neither names nor shapes, or two keys for the same guest.
    """

    def __init__(self, policies: Mapping[object, Given]) -> None:
        self._by_name: dict[str, Given] = {}
        self._by_shape: dict[tuple[int, int], Given] = {}
        self._had: set[str | tuple[int, int]] = set()  # keys that a session was to have
        self._acting: set[int] = set()  # by the ids of policies, which are kept
        self._used: set[str] = set()  # keys that a session had, or that were told
        self._doubted: set[str] = set()  # names of sessions
        for key, policy in policies.items():
            if isinstance(key, str) and key:
                if _bare(key) in self._by_name:
                    raise UsageError(f"policies has {key!r} with and without its suffix: keep one")
                self._by_name[_bare(key)] = policy
            else:
                self._by_shape[_shape_of(key)] = policy

    def choose(
        self,
        behaviors: Sequence[str],
        guest: str,
        num_features: int | None,
        num_actions: int | None,
        declared: Collection[str] = (),
    ) -> Given | None:
        """
        Return the policy for a session, chosen by name, else by shape; None if there is none.

        Args:
            behaviors: The declared behaviors that the session may be of: names come first.
            guest: The name of the guest.
            num_features: Number of features, None for that of the model.
            num_actions: Number of actions, likewise.
            declared: All behaviors of the guest: their names are not those of guests.

        Raises:
            InvalidArguments: Some of the behaviors have policies, and not all of them the same one.

        """
        named = {
            name: self._by_name[_bare(name)] for name in behaviors if _bare(name) in self._by_name
        }
        if len({id(policy) for policy in named.values()}) > 1:
            names = " and ".join(map(repr, named))
            raise _ambiguous(f"one for {names} each", num_features, num_actions, "both")
        others = [repr(name) for name in behaviors if name not in named]
        if named and others:
            has, may_be = f"one for {next(iter(named))!r}", f"{' and '.join(others)}, too"
            raise _ambiguous(has, num_features, num_actions, may_be)
        keys = list(map(_bare, named))
        if not keys and _bare(guest) in self._by_name and _bare(guest) not in map(_bare, declared):
            keys = [_bare(guest)]
        if keys:
            self._used.update(keys)
            self._had.update(keys)
            return self._by_name[keys[0]]
        self._doubt((*behaviors, guest))
        if num_features is None or num_actions is None:
            return None
        shape = num_features, num_actions
        if shape in self._by_shape:
            self._had.add(shape)
        return self._by_shape.get(shape)

    def note_acting(self, policy: Given) -> None:
        """Note that a session has opened with a policy."""
        self._acting.add(id(policy))

    @property
    def idle(self) -> list[str | tuple[int, int]]:
        """The keys of policies with which no session has opened so far."""
        every: list[tuple[str | tuple[int, int], Given]] = [
            *self._by_name.items(),
            *self._by_shape.items(),
        ]
        return [key for key, one in every if key not in self._had or id(one) not in self._acting]

    def _doubt(self, names: Sequence[str]) -> None:
        """
        Warn once of each key that is almost one of these names, as where it is misspelled.

        Names that only their digits tell apart are of different guests.
        """
        for name in names:
            if name in self._doubted or len(self._doubted) >= _MOST_DOUBTED:
                continue
            self._doubted.add(name)
            plain = _DIGITS.sub("", _bare(name))
            keys = [
                key for key in self._by_name
                if key not in self._used and _DIGITS.sub("", key) != plain
            ]  # fmt: skip
            for key in get_close_matches(_bare(name), keys, 1, _ALIKE):
                self._used.add(key)
                log.warning("policies has %r, and none for %r: are they the same?", key, name)


def _ambiguous(
    has: str, num_features: int | None, num_actions: int | None, may_be: str
) -> InvalidArguments:
    return InvalidArguments(
        f"policies has {has}, and a session of {num_features} features and {num_actions} actions"
        f" may be of {may_be}, since it has no name: give both the same, or let the behaviors"
        " differ in their numbers"
    )


def _bare(name: str) -> str:
    """Return a name without the suffix of a module's file: goblin for goblin.wasm."""
    for suffix in _SUFFIXES:
        if name.endswith(suffix) and name != suffix:
            return name.removesuffix(suffix)
    return name


def _shape_of(key: object) -> tuple[int, int]:
    if isinstance(key, tuple) and len(key) == 2:
        features, actions = map(whole_number, key)
        if features is not None and actions is not None and min(features, actions) >= 0:
            return features, actions
    raise UsageError(f"policies has the key {cut_repr(key)}: {_WAYS}")
