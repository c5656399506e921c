"""Policies of the embedder for particular sessions, chosen by name or by shape."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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
        self._chosen: set[str | tuple[int, int]] = set()
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
    ) -> Given | None:
        """
        Return the policy for a session, chosen by name, else by shape; None if there is none.

        `behaviors` are the declared ones that the session may be of: their names come before the
        name of the `guest`. Raises InvalidArguments if they name several policies.
        """
        named = {
            name: self._by_name[_bare(name)] for name in behaviors if _bare(name) in self._by_name
        }
        if len({id(policy) for policy in named.values()}) > 1:
            names = " and ".join(map(repr, named))
            raise InvalidArguments(
                f"policies has one for {names} each, and a session of {num_features} features and"
                f" {num_actions} actions may be of both, since it has no name: give both the same,"
                " or let the behaviors differ in their numbers"
            )
        for name in (*named, guest):
            if (policy := self._by_name.get(_bare(name))) is not None:
                self._used.add(_bare(name))
                self._chosen.add(_bare(name))
                return policy
        self._doubt((*behaviors, guest))
        if num_features is None or num_actions is None:
            return None
        shape = num_features, num_actions
        if shape in self._by_shape:
            self._chosen.add(shape)
        return self._by_shape.get(shape)

    @property
    def idle(self) -> list[str | tuple[int, int]]:
        """The keys of policies that no session has had so far."""
        keys: list[str | tuple[int, int]] = [*self._by_name, *self._by_shape]
        return [key for key in keys if key not in self._chosen]

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
