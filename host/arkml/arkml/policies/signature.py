"""The outputs of a model that hold the actions, found by their names, types and widths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from arkml.errors import InvalidArguments
from arkml.policies.port_names import (
    DESCRIPTIVE,
    Meaning,
    is_discrete,
    is_figure,
    is_flag,
    is_no_head,
    may_act,
    numbers_of,
    unnumbered,
)
from arkml.policies.ports import Parts, Port, by_stem, listed, told_apart
from arkml.policies.roles import Roles

_EXACT = ("actions", "action")
_SAMPLED = "continuous_actions"
_MEAN = "deterministic_continuous_actions"
_CHOSEN = "discrete_actions"
_LIKELIEST = "deterministic_discrete_actions"
_AGENTS = frozenset({_SAMPLED, _MEAN, _CHOSEN, _LIKELIEST})
_RAW = "raw_actions"
_VALUES = ("values", "value")

WAY_OUT = "say which acts: --policy-output NAME, Host(outputs=NAME)"


@dataclass(frozen=True, slots=True)
class Wanted:
    """
    What a session needs of a policy.

    Attributes:
        num_features: Number of features, None for the model's number.
        num_actions: Number of actions, None for the model's number.
        branches: Choices of each of the last actions, which are discrete.
        outputs: Names of the outputs that hold the actions, empty to find them.
        raw: True takes `raw_actions`, which are not clipped, if the model has them.
        parts: Parts of the observation that the guest declares.

    """

    num_features: int | None = None
    num_actions: int | None = None
    branches: tuple[int, ...] = ()
    outputs: tuple[str, ...] = ()
    deterministic: bool = False
    raw: bool = False
    parts: Parts = ()

    @property
    def continuous(self) -> int | None:
        """The number of continuous actions, None if it is not known."""
        return None if self.num_actions is None else self.num_actions - len(self.branches)


@dataclass(frozen=True, slots=True)
class Signature:
    """
    The ports of a model that a policy uses. Features fill the observations in order.

    acting: the outputs whose columns, joined, are the actions. branches: if not empty, the last
    columns are not choices, but a score for each choice of these branches.
    """

    roles: Roles
    acting: tuple[Port, ...]
    values: Port | None
    branches: tuple[int, ...] = ()

    @property
    def num_features(self) -> int:
        """The number of features of one row."""
        return self.roles.num_features

    @property
    def num_actions(self) -> int:
        """The number of actions of one row."""
        width = sum(port.width for port in self.acting)
        return width - sum(self.branches) + len(self.branches)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of all outputs that are used."""
        ports = [*self.acting, *(target for _, target in self.roles.recurrent)]
        if self.values is not None:
            ports.append(self.values)
        return tuple(dict.fromkeys(port.name for port in ports))

    @property
    def sentence(self) -> str:
        """A text for the log that names the outputs that hold the actions."""
        used = [*self.acting, *(port for pair in self.roles.recurrent for port in pair)]
        used = list(dict.fromkeys([*used, *([] if self.values is None else [self.values])]))
        names = dict(zip(used, told_apart(used), strict=True))
        labels = [names[port] for port in self.acting]
        heads = self.acting[-len(self.branches) :] if len(self.branches) > 1 else ()
        if heads and tuple(port.width for port in heads) == self.branches:
            labels[-len(heads) :] = [
                f"{names[port]} (branch {branch}: the highest score of {port.width} choices)"
                for branch, port in enumerate(heads)
            ]
        elif self.branches:
            labels[-1] += f" (the highest score of {_joined(self.branches)} choices)"
        acting = ", ".join(labels)
        value = "no value" if self.values is None else f"the value is {names[self.values]}"
        states = ", ".join(f"{names[a]} from {names[b]}" for a, b in self.roles.recurrent)
        acts = "acts" if len(labels) == 1 else "act in this order"
        return f"{acting} {acts}, {value}" + (f", states: {states}" if states else "")


def find_signature(roles: Roles, wanted: Wanted) -> Signature:
    """
    Find the inputs and outputs of a model that a session uses.

    `roles` are the model's inputs and outputs by role, `wanted` are the needs of the session.
    Raises InvalidArguments if the model does not fit.
    """
    if wanted.num_features is not None and wanted.num_features != roles.num_features:
        raise InvalidArguments(_misfit(roles, wanted.num_features))
    if not roles.outputs:
        raise InvalidArguments(_without_outputs(roles))
    acting = _Outputs(roles.outputs, wanted).acting()
    values = _values(roles.outputs, acting)
    total = sum(port.width for port in acting)
    is_scored = bool(wanted.branches) and _is_scored(total, wanted, acting)
    scored = wanted.branches if is_scored else ()
    fed_back = _with_acting(roles, acting, total - sum(scored))
    signature = Signature(fed_back, acting, values, scored)
    if roles.epsilon is not None and roles.epsilon.width != total:
        raise InvalidArguments(
            f"the model takes epsilon of width {roles.epsilon.width} for {total} actions"
        )
    return signature


def _with_acting(roles: Roles, acting: Sequence[Port], count: int) -> Roles:
    """
    Return the roles with the outputs that act fed back as the last action.

    The first `count` of their columns are actions, the others scores. Raises InvalidArguments if no
    output of actions has the shape of the input.
    """
    ends = accumulate(port.width for port in acting)
    given = [port for port, end in zip(acting, ends, strict=True) if end <= count]
    pairs = []
    for source, target in roles.recurrent:
        is_state = target not in roles.outputs
        fitting = [port for port in given if port.shape == source.shape]
        if not is_state and target not in given and len(fitting) != 1:
            raise InvalidArguments(
                f"the model takes the action before ({listed([source])}), and of the outputs that"
                f" act ({listed(acting)}) none, or more than one, has such actions"
            )
        pairs.append((source, target if is_state or target in given else fitting[0]))
    return replace(roles, recurrent=tuple(pairs))


def _misfit(roles: Roles, given: int) -> str:
    text = (
        f"the model takes {roles.num_features} features ({listed(roles.observations)}),"
        f" {given} are given"
    )
    others = [
        port
        for port in roles.observations
        if is_flag(port.name) or is_figure(port.name) or port.meaning is Meaning.ASIDE
    ]
    if len(roles.observations) - len(others) > 1:
        text += "; an input of recurrent state has the name and shape of an output, as h_in, h_out"
    if others and roles.num_features > given:
        text += (
            f"; by their names these are masks, flags or figures, of which the host feeds none but"
            f" the masks of all choices as one input action_masks: {listed(others)}. The guest has"
            " them among its features, or the export leaves them out"
        )
    return text


def _without_outputs(roles: Roles) -> str:
    uses = [
        f"{target.label!r} is the state that {s.label!r} takes" for s, target in roles.recurrent
    ]
    uses += [f"{name!r} has no row for each row of the inputs" for name in roles.rowless]
    return f"no output of the model acts: {', '.join(uses) or 'it has none'}"


class _Outputs:
    """The outputs of a model, from which a session's demands choose the ones that act."""

    def __init__(self, ports: Sequence[Port], wanted: Wanted) -> None:
        self._ports = ports
        self._named = by_stem(ports)
        self._agents = [port for stem, port in self._named.items() if stem in _AGENTS]
        self._wanted = wanted

    def acting(self) -> tuple[Port, ...]:
        """Return the outputs that act. Raises InvalidArguments."""
        wanted = self._wanted
        if wanted.outputs:
            return self._given(wanted.outputs)
        raw = self._named.get(_RAW) if wanted.raw else None
        if raw is not None and raw.width == wanted.num_actions:
            return (raw,)
        agents = self._of_agents()
        fitting = self._fitting()
        exact = [self._named[name] for name in _EXACT if name in self._named]
        if exact := [port for port in exact if port in fitting]:
            return (exact[0],)
        return agents or self._mixed() or (self._only(),)

    def _given(self, names: Sequence[str]) -> tuple[Port, ...]:
        chosen = []
        for name in names:
            named = [port for port in self._ports if port.name == name]
            named = named or [port for port in self._ports if port.label == name]
            if len(named) != 1:
                raise InvalidArguments(
                    f"the model has no output {name!r}, only {listed(self._ports)}"
                )
            chosen += named
        if len(set(chosen)) < len(chosen):
            raise InvalidArguments(f"an output is named twice: {', '.join(names)}")
        if not self._fits(sum(port.width for port in chosen)):
            raise InvalidArguments(
                f"the outputs that act have {_sum(chosen)} columns ({listed(chosen)}), not"
                f" {self._count}"
            )
        return tuple(chosen)

    def _of_agents(self) -> tuple[Port, ...]:
        """Return the actions of ML-Agents: continuous, choices, or both."""
        named = self._named
        order = (_MEAN, _SAMPLED) if self._wanted.deterministic else (_SAMPLED, _MEAN)
        chosen = (_LIKELIEST, _CHOSEN) if self._wanted.deterministic else (_CHOSEN, _LIKELIEST)
        parts = [next((named[name] for name in names if name in named), None)
                 for names in (order, chosen)]  # fmt: skip
        found = [part for part in parts if part is not None]
        is_half = len(found) == 1 and self._is_mixed
        if not found or is_half or not self._fits(_sum(found)):
            return ()
        return tuple(found)

    @property
    def _is_mixed(self) -> bool:
        """True for a session that is known to have choices and other actions."""
        return bool(self._wanted.branches and self._wanted.continuous)

    def _mixed(self) -> tuple[Port, ...]:
        """Return the parts of a model that has them apart. Raises as `acting`."""
        wanted = self._wanted
        free = [
            port
            for port in self._unexplained()
            if port not in self._agents and not is_no_head(port.name)
        ]
        choices = self._parts(free)
        if not choices or (len(choices) == 1 and len(choices[0]) == 1 and not wanted.continuous):
            self._require_together(free)
            return ()
        floats = [p for p in free if not (p.is_whole or _has_scores(p) or is_discrete(p.name))]
        floats = [port for port in floats if port.width == wanted.continuous]
        if len(choices) == 1:
            floats = [port for port in floats if port not in choices[0]]
        floats = _called_actions(floats) or floats
        expected = 1 if wanted.continuous else 0
        if len(choices) == 1 and len(floats) == expected:
            return (*floats, *choices[0])
        if not floats and expected:
            raise InvalidArguments(
                f"the model has no output of {wanted.continuous} actions beside choices"
                f" ({listed(choices[0])}), only {listed(self._ports)}; {WAY_OUT}"
            )
        listed_ports = dict.fromkeys([*floats, *(port for part in choices for port in part)])
        raise InvalidArguments(self._ambiguous(list(listed_ports)))

    def _require_together(self, free: Sequence[Port]) -> None:
        """Raise InvalidArguments if two outputs may be continuous actions and scores of choices."""
        wanted = self._wanted
        if not self._is_mixed:
            return
        floats = [port for port in free if not port.is_whole]
        plain = [p for p in floats if p.width == wanted.continuous and not _has_scores(p)]
        if _called_actions(self._fitting()):
            plain = [port for port in plain if may_act(port.name)]
        for port in plain:
            others = [other for other in floats if other is not port]
            if heads := self._heads(others):
                raise InvalidArguments(self._ambiguous(list(dict.fromkeys([*plain, *heads]))))

    def _heads(self, ports: Sequence[Port]) -> list[Port]:
        """Return the outputs that can be scores by their widths: of all branches, or of each."""
        branches = self._wanted.branches
        found = [port for port in ports if port.width == sum(branches)]
        if Counter(branches) <= Counter(port.width for port in ports):
            found += [port for port in ports if port.width in branches]
        return found

    def _parts(self, free: Sequence[Port]) -> list[tuple[Port, ...]]:
        """Return the outputs that can be a session's choices: one alone, or one for each branch."""
        branches = self._wanted.branches
        if not branches or self._wanted.continuous is None:
            return []
        whole = [port for port in free if port.is_whole]
        scores = [port for port in free if _has_scores(port)]
        parts: list[tuple[Port, ...]] = [(p,) for p in whole if p.width == len(branches)]
        if len(branches) > 1 and [port.width for port in whole] == [1] * len(branches):
            parts.append(numbered(whole))
        if parts:  # scores beside choices are those from which they were made
            return parts
        parts = [(port,) for port in scores if port.width == sum(branches)]
        each = self._of_branches(scores)
        if each or parts:
            return parts + each
        discrete = [port for port in free if is_discrete(port.name)]
        parts = [(port,) for port in discrete if port.width == sum(branches)]
        if parts and self._is_mixed:
            return parts
        floats = [p for p in free if p.width > 1 and not (p.is_whole or _has_scores(p))]
        each = [*self._of_branches(floats), *self._of_branches(_alike_in_name(floats))][:1]
        if each and not _alike_in_name(each[0]):  # or one of them has the choices as floats
            parts = [(port,) for port in each[0] if port.width == len(branches)]
        return parts + each

    def _of_branches(self, ports: Sequence[Port]) -> list[tuple[Port, ...]]:
        """Return these outputs as scores, if there is one of its width for each branch."""
        branches, ordered = self._wanted.branches, numbered(ports)
        if len(branches) > 1 and len(set(branches)) == len(branches) == len(ports):
            by_width = {port.width: port for port in ports}
            ordered = tuple(by_width[width] for width in branches if width in by_width)
        is_each = len(branches) > 1 and [port.width for port in ordered] == list(branches)
        return [ordered] if is_each else []

    def _only(self) -> Port:
        """Return the one output that can be the actions. Raises InvalidArguments."""
        fitting = [port for port in self._fitting() if port not in self._agents]
        if self._wanted.branches:  # a logit for each branch is no choice
            fitting = [p for p in fitting if not _has_scores(p) or self._is_scored(p)]
        for among in (
            _called_actions(fitting),
            self._choices(fitting),
            [port for port in fitting if port.meaning is not Meaning.ACTIONS],
        ):
            if self._wanted.num_actions is None:
                # Of two outputs the one of width 1 is the value, if only one of them has it.
                among = [p for p in among if p.width != 1 or p.is_whole] or among
            if len(among) == 1 and self._is_each(among[0]):
                raise InvalidArguments(
                    f"the output {listed(among)} of the model may be choices, or a score for each"
                    f" branch, and its name does not tell: {WAY_OUT}"
                )
            if len(among) == 1 and len(heads := self._numbered_as(among[0])) > 1:
                raise InvalidArguments(self._ambiguous(heads))
            if len(among) == 1 and not self._is_doubtful(among[0]):
                return among[0]
            if among:
                others = [p for p in self._unexplained() if p not in among and len(among) == 1]
                raise InvalidArguments(self._ambiguous([*among, *others]))
        raise InvalidArguments(self._missing())

    def _choices(self, fitting: Sequence[Port]) -> list[Port]:
        """Return the outputs that are choices, or scores of choices, for a session with some."""
        wanted = self._wanted
        if not wanted.branches:
            return []
        plain = [port for port in fitting if port.meaning is not Meaning.ACTIONS]
        whole = [port for port in plain if port.is_whole]
        scores = [port for port in plain if port.meaning is Meaning.SCORES]
        if whole:
            return whole
        perhaps = [port for port in plain if port.meaning is Meaning.PERHAPS]
        return scores + perhaps if scores else [port for port in plain if self._is_scored(port)]

    def _is_scored(self, port: Port) -> bool:
        return _is_scored(port.width, self._wanted, (port,))

    def _is_each(self, port: Port) -> bool:
        """Return True if a nameless output has a float for each branch, and nothing else."""
        wanted = self._wanted
        is_each = bool(wanted.branches) and port.width == len(wanted.branches) == wanted.num_actions
        return is_each and not port.is_whole and port.meaning is not Meaning.ACTIONS

    def _numbered_as(self, port: Port) -> list[Port]:
        """Return the outputs for actions or scores whose names differ in numbers alone."""
        if port.meaning is Meaning.UNKNOWN:  # exporters number the names that they make
            return []
        name = unnumbered(port.name)
        return [one for one in self._unexplained() if unnumbered(one.name) == name]

    def _is_doubtful(self, port: Port) -> bool:
        """Return True if a nameless output of width 1 may be the value beside the actions."""
        if port.width != 1 or port.is_whole or port.meaning is Meaning.ACTIONS:
            return False
        return len(self._unexplained()) > 1

    def _unexplained(self) -> list[Port]:
        """Return the outputs whose names do not say that they are anything but actions."""
        apart = (Meaning.VALUE, Meaning.ASIDE)
        return [
            port
            for port in self._ports
            if port.meaning not in apart
            and port.stem not in DESCRIPTIVE
            and port != self._named.get(_RAW)
        ]

    def _fitting(self) -> list[Port]:
        return [port for port in self._unexplained() if self._fits(port.width)]

    def _fits(self, width: int) -> bool:
        wanted = self._wanted
        if wanted.num_actions is None:
            return width >= len(wanted.branches)
        return width in (wanted.num_actions, _scored_width(wanted))

    @property
    def _count(self) -> str:
        wanted = self._wanted
        text = "actions" if wanted.num_actions is None else f"{wanted.num_actions} actions"
        if wanted.branches and wanted.num_actions is not None:
            text += f", nor {_scored_width(wanted)} with a score for each choice"
        return text

    def _missing(self) -> str:
        wanted = self._wanted
        text = f"the model has no output of {self._count}, only {listed(self._ports)}"
        scores = [p for p in self._unexplained() if p.width > 1 and not p.is_whole]
        if scores and not wanted.branches and wanted.num_actions == 1:
            text += (
                "; a guest that declares its branches (arkml.spec) gets the choice of the highest"
                " of such scores"
            )
        if wanted.num_actions and any(p.width == 2 * wanted.num_actions for p in scores):
            text += (
                "; an output of twice the width may be means with deviations behind them (RLlib's"
                " action_dist_inputs): export the means alone"
            )
        widths = [*(port.width for port in self._ports), _sum(self._unexplained())]
        return f"{text}; {WAY_OUT}" if any(map(self._fits, widths)) else text

    def _ambiguous(self, ports: Sequence[Port]) -> str:
        wanted = self._wanted
        count = "actions" if wanted.num_actions is None else f"{wanted.num_actions} actions"
        return (
            f"the model has {len(ports)} outputs that could be the {count} ({listed(ports)}),"
            f" and their names do not tell: {WAY_OUT}"
        )


def _scored_width(wanted: Wanted) -> int | None:
    """Return the columns of actions with a score for each choice."""
    if wanted.continuous is None or not wanted.branches:
        return None
    return wanted.continuous + sum(wanted.branches)


def _is_scored(width: int, wanted: Wanted, acting: Sequence[Port]) -> bool:
    """Return True if outputs of this width have scores in the place of choices."""
    if not wanted.branches or width == wanted.num_actions:
        return False
    if wanted.num_actions is None:
        return not acting[-1].is_whole and width == sum(wanted.branches)
    return width == _scored_width(wanted)


def _values(outputs: Sequence[Port], acting: Sequence[Port]) -> Port | None:
    known = {*DESCRIPTIVE, *_AGENTS, _RAW}
    rest = [
        port
        for port in outputs
        if port not in acting and port.width == 1 and port.stem not in known
        if not (port.is_whole or port.type == "bool")
    ]
    named = by_stem(rest)
    for name in _VALUES:
        if name in named:
            return named[name]
    for kind in (Meaning.VALUE, Meaning.UNKNOWN):
        if found := [port for port in rest if port.meaning is kind]:
            return found[0] if len(found) == 1 else None
    return None


def _called_actions(ports: Sequence[Port]) -> list[Port]:
    """Return the outputs that are called actions, if one is: others may be these, or about them."""
    if all(port.meaning is not Meaning.ACTIONS for port in ports):
        return []
    return [port for port in ports if may_act(port.name)]


def _has_scores(port: Port) -> bool:
    return port.meaning is Meaning.SCORES


def numbered(ports: Sequence[Port]) -> tuple[Port, ...]:
    """
    Return outputs in the order of their numbers, if only these differ in their names: `head_0`.
    """
    numbers = [numbers_of(port.name) for port in ports]
    if len(_alike_in_name(ports)) < len(ports) or len(set(numbers)) < len(ports):
        return tuple(ports)
    return tuple(sorted(ports, key=lambda port: numbers_of(port.name)))


def _alike_in_name(ports: Sequence[Port]) -> list[Port]:
    """Return the outputs whose names differ in numbers alone, if these are more than one."""
    groups: dict[tuple[str, ...], list[Port]] = {}
    for port in ports:
        if name := unnumbered(port.name):
            groups.setdefault(name, []).append(port)
    found = [group for group in groups.values() if len(group) > 1]
    return found[0] if len(found) == 1 else []


def _sum(ports: Iterable[Port]) -> int:
    return sum(port.width for port in ports)


def _joined(numbers: Iterable[int]) -> str:
    return " and ".join(map(str, numbers))
