"""Declarations of a guest's rows: the branches of actions, and the parts of observations."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache

from arkml.errors import InvalidSettings, InvalidSpec, NotTrainable
from arkml.hive.protocol.parts import Part, fields_of, learned_parts
from arkml.hive.protocol.settings import guest_settings
from arkml.policies.ports import Parts
from arkml.sessions.declarations import (
    ANY,
    SECTION,
    BehaviorDeclared,
    Behaviors,
    behavior_of,
    behaviors_in,
    fitting,
    listed,
    parts_of,
    require_declared,
)
from arkml.sessions.run_request import TrainingRequest

MOST_CHOICES = 4_096
"""Choices of all branches of an action together."""

_MOST_RUNS = 64  # of which the declarations in their configurations are kept


_NO_BEHAVIORS: Behaviors = {}
_behaviors_in = lru_cache(64)(behaviors_in)  # each guest of a fleet has the same section


class DeclaredBranches:
    """
    The branches that a guest declares for its behaviors.

    Branches (3, 2), for example, mean that the last two actions are a choice of three and a choice
    of two. Branches are declared in the section `arkml.spec` of the module, else by `spec` in the
    configuration of a run. `fault` is the error in the section, or None. `contradiction` is the
    first error in the declaration of a run that the guest asked for, or None.
    """

    __slots__ = ("_of_runs", "_section", "behaviors", "contradiction", "fault")

    def __init__(self, section: bytes | None) -> None:
        self.fault: InvalidSpec | None = None
        self.contradiction: str | None = None
        self.behaviors: Behaviors = _NO_BEHAVIORS
        """The declarations in the section."""
        self._of_runs: Behaviors = _NO_BEHAVIORS
        self._section = section
        try:
            self.behaviors = _behaviors_in(section)
        except InvalidSpec as error:
            self.fault = error.with_traceback(None)  # which would keep the guest's frames

    @property
    def origin(self) -> Hashable:
        """A value that is equal for declarations of the same content."""
        return self if self._of_runs else self._section

    @property
    def discrete(self) -> tuple[int, ...]:
        """
        The branches of the first behavior, if all declared behaviors have branches; else none.
        """
        self._require_sound()
        every = [_sizes(name, one) for name, one in self.behaviors.items()]
        return every[0] if every and all(every) else ()

    def other_bounds(self, name: str = "", own: object = None) -> str:
        """
        Return declared bounds of continuous actions other than [-1, 1], as "[0, 1] for 'car'".

        Bounds are read from the section or, without a section, from `own`: the declaration in the
        configuration of the run `name`, which was checked. Returns "" if there are none.
        """
        every = self.behaviors
        if not every and own is not None:
            every = {name: behavior_of(own, name)}
        found = {name: one.actions.other_bounds for name, one in every.items()}
        return ", ".join(f"{bounds} for {listed([n])}" for n, bounds in found.items() if bounds)

    def of(
        self, name: str, num_features: int, num_actions: int, own: object = None
    ) -> tuple[int, ...]:
        """
        Return the branches of a behavior: the number of choices of each of its last actions.

        `own` is the declaration in the configuration of the behavior's run. Raises NotTrainable if
        the declaration is malformed, contradicts the widths, or names only other behaviors.
        """
        declared = self._declared(name, num_features, num_actions, own)
        return () if declared is None else _sizes(name, declared)

    def is_partial(
        self, name: str, num_features: int, num_actions: int, own: object = None
    ) -> bool:
        """Return whether a behavior declares that its observations are partial. Raises as `of`."""
        declared = self._declared(name, num_features, num_actions, own)
        return declared is not None and declared.partial

    def seen_parts(
        self, name: str, num_features: int, num_actions: int, own: object = None
    ) -> tuple[Part, ...]:
        """
        Return the parts of a behavior's rows, none if all of them are vectors. Raises as `of`.
        """
        declared = self._declared(name, num_features, num_actions, own)
        return () if declared is None else learned_parts(parts_of(declared.observations))

    def _declared(
        self, name: str, num_features: int, num_actions: int, own: object
    ) -> BehaviorDeclared | None:
        """Return the declaration of a behavior. As `of`."""
        self._require_sound()
        declared, where = self.behaviors.get(name, self.behaviors.get(ANY)), SECTION
        try:
            if declared is None and own is not None:
                where = "spec in the configuration"
                declared = behavior_of(own, f"{where} of {name!r}")
            if declared is None:
                require_declared(self.behaviors, name, SECTION)
            else:
                declared.require_fit(f"{where} for {name!r}", num_features, num_actions)
        except InvalidSpec as error:
            raise NotTrainable(str(error)) from error
        return declared

    def require(
        self, name: str, num_features: int, num_actions: int, branches: Sequence[int]
    ) -> None:
        """Raise NotTrainable if a behavior's declaration contradicts the branches of its run."""
        self._require_sound()
        if not self.behaviors:
            return
        own = self.of(name, num_features, num_actions)
        if own != tuple(branches):
            raise NotTrainable(
                f"{name!r} declares branches of {_listed(own)} choices, and its run has branches of"
                f" {_listed(branches)}"
            )

    def note(self, request: TrainingRequest) -> None:
        """
        Keep the declaration in the configuration of a run that the guest asks for.

        The declaration also applies to inference sessions. An error in it, or in the section for
        this run, is stored as `contradiction`, for which the start of the run is refused.
        """
        name, features, actions = request.experiment, request.num_features, request.num_actions
        try:
            own = guest_settings(request.configuration).get("spec")
            if features is not None and actions is not None:
                self.of(name, features, actions, own)
            if own is not None and not self.behaviors and len(self._of_runs) < _MOST_RUNS:
                declared = behavior_of(own, f"spec in the configuration of {name!r}")
                self._of_runs = {**self._of_runs, name: declared}
        except (InvalidSettings, InvalidSpec) as error:
            self.contradiction = self.contradiction or str(error)

    def names_of(self, num_features: int | None, num_actions: int | None) -> list[str]:
        """
        Return the names of declared behaviors that fit an inference session with these numbers.

        None stands for any number.
        """
        every = self.behaviors or self._of_runs
        if num_features is None:
            return [
                name for name, one in every.items() if name != ANY and one.actions.fit(num_actions)
            ]
        return [name for name in fitting(every, num_features, num_actions) if name != ANY]

    def unread(self, num_features: int | None, num_actions: int | None) -> str:
        """
        Return why the section does not apply to an inference session with these numbers, or "".
        """
        if self.fault is not None:
            return str(self.fault)
        if not self.behaviors or num_features is None:
            return ""
        if fitting(self.behaviors, num_features, num_actions):
            return ""
        actions = "any" if num_actions is None else num_actions
        return (
            f"{SECTION} for {listed(self.behaviors)} fits no rows of {num_features} features and"
            f" {actions} actions"
        )

    def of_rows(
        self, num_features: int, num_actions: int | None, choices: int | None
    ) -> tuple[int, ...]:
        """
        Return the branches of an inference session, found by its numbers of features and actions.

        `choices` is the width of the masks that its policy takes, None for a policy without masks;
        it decides if several behaviors have the same numbers. Returns no branches if the guest
        declares none, or if the fitting declarations contradict each other.
        """
        every = self.behaviors or self._of_runs
        fit = fitting(every, num_features, num_actions).values()
        found = {tuple(one.actions.discrete) for one in fit}
        if len(found) > 1:
            found = {branches for branches in found if sum(branches) == choices}
        if len(found) == 1:
            return found.pop()
        if choices is not None and num_actions == 1 and not every:
            return (choices,)
        return ()

    def parts_of(self, num_features: int, num_actions: int | None) -> Parts:
        """
        Return the parts of observations for rows with these numbers of features and actions.

        Returns no parts if the guest declares none, or if fitting behaviors have different parts.
        """
        fit = fitting(self.behaviors or self._of_runs, num_features, num_actions).values()
        found = {tuple(fields_of(parts_of(parts))) for parts in (one.observations for one in fit)}
        return found.pop() if len(found) == 1 else ()

    def _require_sound(self) -> None:
        """Raise NotTrainable if the section cannot be read."""
        if self.fault is not None:
            raise NotTrainable(str(self.fault))


def _sizes(name: str, declared: BehaviorDeclared) -> tuple[int, ...]:
    """Return the declared sizes of branches. Raises NotTrainable for too many choices."""
    discrete = declared.actions.discrete
    if sum(discrete) > MOST_CHOICES:
        raise NotTrainable(
            f"{name!r} declares {sum(discrete)} choices in all branches: a run takes"
            f" {MOST_CHOICES} at most"
        )
    return tuple(discrete)


def _listed(branches: Sequence[int]) -> str:
    return ", ".join(map(str, branches)) or "no"
