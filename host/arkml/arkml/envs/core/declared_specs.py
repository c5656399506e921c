"""Declared specs of behaviors, by the embedder, the module or the experiment."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from arkml.envs.core.specs import Actions, ObservationPart, Spec
from arkml.errors import InvalidSettings, InvalidSpec
from arkml.hive.protocol.settings import guest_settings
from arkml.sessions.declarations import (
    ANY,
    KEY,
    SECTION,
    BehaviorDeclared,
    Behaviors,
    SpecLike,
    behavior_of,
    behaviors_in,
    behaviors_of,
    bounded_fields,
    bounds_of,
    fitting,
    given_document,
    listed,
    require_declared,
)

_KEPT_CHARACTERS = 4_096  # of a configuration, for the next instance


class Declarations:
    """
    Declarations of behaviors by the embedder, else by the module, else by the experiment.

    Each of the three is an object whose "behaviors" maps names, or "*", to declarations; or one
    declaration for all behaviors. Raises InvalidSpec.

    Args:
        given: The declaration of the embedder: an object, the path of a JSON file, or None.
        section: The contents of the module's custom section `arkml.spec`, or None.

    """

    def __init__(self, given: SpecLike, section: bytes | None) -> None:
        self.given: Mapping[str, Any] = given_document(given)
        """The declaration of the embedder, as an object of JSON."""
        self._given = behaviors_of(self.given, KEY)
        self._sources: list[tuple[str, Behaviors]] = [
            (KEY, self._given),
            (SECTION, behaviors_in(section)),
        ]
        self._known: tuple[tuple[str, int, int, str], Spec] | None = None

    def of(self, name: str, num_features: int, num_actions: int, configuration: str = "") -> Spec:
        """
        Return the spec of a behavior.

        Args:
            name: Name of the behavior.
            num_features: Number of features of the behavior's rows.
            num_actions: Number of actions of the behavior's rows.
            configuration: The guest's configuration of its experiment.

        Raises:
            InvalidSpec: The declaration contradicts the widths, or the module declares other
                behaviors.

        """
        asked = name, num_features, num_actions, configuration
        if self._known is not None and self._known[0] == asked:  # as all instances ask
            return self._known[1]
        spec = self._of(*asked)
        self._known = (asked, spec) if len(configuration) <= _KEPT_CHARACTERS else None
        return spec

    def of_rows(self, name: str, num_features: int, num_actions: int) -> Spec:
        """
        Return the spec of the rows of an inference session, for which there is no experiment.

        The result is the spec of `name` or, if that is not declared, of the one declared behavior
        with these numbers of features and actions.

        Args:
            name: Name of the behavior.
            num_features: Number of features of each row.
            num_actions: Number of actions of each row.

        Raises:
            InvalidSpec: No declared behavior, or more than one, has these numbers.

        """
        widths = num_features, num_actions
        for where, source in self._sources:
            declared = source.get(name, source.get(ANY))
            if declared is not None:
                return _fitted(declared, f"{where} for {name!r}", *widths)
            fit = fitting(source, *widths)
            if len(fit) > 1:
                raise InvalidSpec(
                    f"{where} declares {listed(fit)} with {num_features} features and"
                    f" {num_actions} actions, as an inference session has: declare {name!r}, or"
                    f' "{ANY}"'
                )
            for other, declared in fit.items():
                return _fitted(declared, f"{where} for {other!r}", *widths)
            require_declared(source, name, where)
        return Spec.flat(*widths)

    def missed(self, names: Collection[str]) -> str:
        """Return a sentence if the embedder declares behaviors, but none of `names`; else ""."""
        if self._given and ANY not in self._given and self._given.keys().isdisjoint(names):
            return f"{KEY} declares {listed(self._given)}, and the guest has {listed(names)}"
        return ""

    def _of(self, name: str, num_features: int, num_actions: int, configuration: str) -> Spec:
        widths = num_features, num_actions
        for where, source in self._sources:
            declared = source.get(name, source.get(ANY))
            if declared is not None:
                return _fitted(declared, f"{where} for {name!r}", *widths)
        try:
            own = guest_settings(configuration).get(KEY)
        except InvalidSettings as error:
            raise InvalidSpec(str(error)) from error
        if own is None:
            where, section = self._sources[-1]
            require_declared(section, name, where)
            return Spec.flat(*widths)
        where = f"{KEY} in the configuration of {name!r}"
        return _fitted(behavior_of(own, where), where, *widths)


def _fitted(declared: BehaviorDeclared, where: str, num_features: int, num_actions: int) -> Spec:
    """Return the spec of a declaration for these widths. Raises InvalidSpec."""
    declared.require_fit(where, num_features, num_actions)
    actions = declared.actions
    continuous = actions.continuous_of(num_actions)
    low, high = bounds_of(actions.low, actions.high, continuous, where)
    return Spec(
        _parts(declared) or Spec.flat(num_features, num_actions).observations,
        Actions(
            continuous,
            low,
            high,
            tuple(actions.discrete),
            actions.action_names,
            actions.choice_names,
        ),
        declared.decision_period,
        declared.slots,
        declared.positions,
        declared.game(where, num_features),
    )


def _parts(declared: BehaviorDeclared) -> tuple[ObservationPart, ...]:
    shown = []
    for field, one, low, high in bounded_fields(declared.observations):
        is_goal = one.type == "goal" and not field.is_count
        shown.append(
            ObservationPart(
                field.name,
                field.shape,
                low,
                high,
                is_goal,
                field.kind,
                field.part.categories,
                field.part.choices or None,
            )
        )
    return tuple(shown)
