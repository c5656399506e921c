"""Policies that answer batches by running a model."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from arkml.batches import Batch, Floats
from arkml.errors import AbiError, InvalidArguments
from arkml.policies.agents import AgentTable
from arkml.policies.choice_masks import ChoiceMasks, MaskedPolicy
from arkml.policies.given import ObjectPolicy
from arkml.policies.model import Call, Model
from arkml.policies.model_runner import (
    BoundBatch,
    ModelRunner,
    Rows,
    States,
    execute,
    failed,
    is_of_model,
)
from arkml.policies.policy import Policy
from arkml.policies.ports import Port
from arkml.policies.roles import Adaptation
from arkml.policies.signature import Signature
from arkml.policies.workspace import PolicyWorkspace


class Copy(NamedTuple):
    """A copy of numbers from one array to another, multiplied by a factor."""

    target: Floats
    source: Floats
    factor: float = 1.0

    def make(self) -> None:
        """Copy the present numbers of the source."""
        if self.factor == 1.0:
            np.copyto(self.target, self.source)
        else:
            np.multiply(self.source, np.float32(self.factor), out=self.target)


Columns = tuple[Port, Floats]
"""A port and the columns of the batch that it has: float32, [n, width]."""


class BoundPolicyBatch(BoundBatch):
    """
    The arrays and functions that answer one `Batch`, kept in its `scratch`.

    before, after: copies to make before and after a run. masks: float32, [n, choices], the model's
    input for masks, or None. scores: float32, [n, width] each, columns that end with a score for
    each choice; empty if the model returns the actions. `only` is the one function that answers the
    whole batch, if nothing else is to be done, or None.
    """

    __slots__ = ("after", "before", "masks", "only", "scores")

    def __init__(self, bound: BoundBatch, before: Sequence[Copy], after: Sequence[Copy]) -> None:
        super().__init__(
            bound.owner,
            bound.count,
            bound.calls,
            bound.feeds,
            bound.fetches,
            bound.epsilon,
            bound.alike,
        )
        self.before = before
        self.after = after
        self.masks: Floats | None = None
        self.scores: Sequence[Floats] = ()
        self.only: Call | None = None

    def release(self) -> None:
        """Drop the arrays; the batch must then be bound again."""
        super().release()
        self.before, self.after, self.scores = (), (), ()
        self.masks = self.only = None


class OnnxPolicy:
    """
    A policy that computes actions from features by a model.

    The model reads features from the batch's arrays and writes actions and values there. Arrays are
    bound to the model once for each `Batch` object. `masks` hold the masks of each batch, for a
    model that takes masks, or that returns a score for each choice, of which the highest allowed
    one is taken; without `masks` all choices are allowed. Raises InvalidArguments if the model
    takes masks of another number of choices. `snapshot` is the digest of the snapshot that a guest
    brought, None for a policy of the embedder or of a run.
    """

    def __init__(
        self,
        model: Model,
        signature: Signature,
        *,
        workspace: PolicyWorkspace,
        seed: int = 0,
        deterministic: bool = False,
        pink: bool = False,
        agents: AgentTable | None = None,
        masks: ChoiceMasks | None = None,
        snapshot: bytes | None = None,
    ) -> None:
        is_masked = bool(signature.roles.masks or signature.branches)
        self._masks = masks if masks is not None and is_masked else None
        if self._masks is not None and signature.roles.masks:
            _require_choices(signature, self._masks.choices)
        scored = len(signature.branches)
        self._continuous = signature.num_actions - scored if scored else 0
        self._starts = list(accumulate(signature.branches, initial=self._continuous))
        self.num_features = signature.num_features
        self.num_actions = signature.num_actions
        self._signature = signature
        self._runner = ModelRunner(
            model,
            signature.roles,
            seed=seed,
            deterministic=deterministic,
            pink=pink,
            workspace=workspace,
            agents=agents,
            snapshot=snapshot,
            taken=_Taken(signature, masks),
        )
        self._limit = self._runner.limit
        self._model = model

    @property
    def is_of_guest(self) -> bool:
        """True if a guest brought the model, False if the embedder or a run did."""
        return self._limit.is_of_guest

    @property
    def takes_masks(self) -> bool:
        """True if the model has an input for masks."""
        return bool(self._signature.roles.masks)

    @property
    def takes_highest(self) -> bool:
        """
        True if the allowed choice with the highest score is taken, rather than the model's own.
        """
        return bool(self._signature.branches)

    @property
    def is_recurrent(self) -> bool:
        """True if the model has recurrent states."""
        return bool(self._signature.roles.recurrent)

    @property
    def session_bytes(self) -> int:
        """Bytes charged to the guest for the model: 0 unless the guest brought it."""
        return self._model.session_bytes if self.is_of_guest else 0

    def act(self, batch: Batch) -> None:
        """Fill `batch.actions` and `batch.values`. Raises Unavailable if the model fails."""
        bound = batch.scratch
        if type(bound) is not BoundPolicyBatch or bound.owner is not self._limit.user:
            bound = batch.scratch = self._bind(batch)
        if bound.only is not None:
            # One row costs three microseconds here: no other work may be added.
            try:
                bound.only()
            except AbiError:
                raise
            except Exception as error:
                if not is_of_model(error):
                    raise
                raise failed(error) from error
        elif len(batch):
            self._act(batch, bound)

    def only_call(self, batch: Batch) -> Call | None:
        """Return the one function that answers a batch completely, None if there is more to do."""
        bound = batch.scratch
        if type(bound) is not BoundPolicyBatch or bound.owner is not self._limit.user:
            return None
        return bound.only

    @property
    def agents(self) -> AgentTable | None:
        """The agents whose steps and states the policy keeps, None for one that keeps none."""
        return None if self._runner.is_stateless else self._runner.agents

    def forget(self, key: int) -> None:
        """Drop the state of the agents of session `key`, which is closed."""
        self._runner.forget(key)

    def take_from(self, other: OnnxPolicy, keys: Collection[int]) -> bool:
        """Take over the agents of sessions `keys`; see `ModelRunner.take_from`."""
        return self._runner.take_from(other._runner, keys)

    def _act(self, batch: Batch, bound: BoundPolicyBatch) -> None:
        for copy in bound.before:
            copy.make()
        if bound.masks is not None and self._masks is not None:  # an input of the model
            self._masks.write(bound.masks)
        if self._runner.is_stateless:
            execute(bound.calls)
        else:
            self._runner.run(bound, batch.keys, batch.rows["id"], batch.rows["state"])
        for copy in bound.after:
            copy.make()
        if bound.scores:
            self._choose(bound.scores, batch.actions)

    def _choose(self, columns: Sequence[Floats], actions: Floats) -> None:
        """
        Write the actions of columns that end with a score for each choice.

        The highest score of a branch is its choice, NaN if one of its scores is NaN.
        """
        scores = columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)
        actions[:, : self._continuous] = scores[:, : self._continuous]
        masks = None if self._masks is None else self._masks.rows
        if masks is not None:
            masked = np.where(masks == 0, -np.inf, scores[:, self._continuous :])
            scores = np.concatenate((scores[:, : self._continuous], masked), axis=1)
        for branch, (start, end) in enumerate(pairwise(self._starts), self._continuous):
            of_branch = scores[:, start:end]
            actions[:, branch] = of_branch.argmax(axis=1)
            actions[np.isnan(of_branch).any(axis=1), branch] = np.nan

    def _bind(self, batch: Batch) -> BoundPolicyBatch:
        count = len(batch)
        sources: list[Columns] = []
        start = 0
        for port in self._signature.roles.observations:
            sources.append((port, batch.features[:, start : start + port.width]))
            start += port.width
        targets: list[Columns] = []
        extra: list[Port] = []
        if self._signature.branches:
            extra += self._signature.acting
        else:
            start = 0
            for port in self._signature.acting:
                targets.append((port, batch.actions[:, start : start + port.width]))
                start += port.width
        if self._signature.values is not None:
            targets.append((self._signature.values, batch.values[:, None]))
        adapted = dict(self._signature.roles.adapted)
        feeds, inputs = _in_place([one for one in sources if one[0] not in adapted])
        inputs += [one for one in sources if one[0] in adapted]
        fetches, outputs = _in_place(targets)
        masks = None
        if self._masks is not None and self._signature.roles.masks:
            (port,) = self._signature.roles.masks
            masks = self._masks.room(count)
            feeds[port.name] = masks.reshape(count, *port.shape)
        bound = self._runner.bind(
            count,
            batch.keys,
            feeds,
            fetches,
            inputs=[port for port, _ in inputs],
            outputs=[*extra, *(port for port, _ in outputs)],
        )
        before = [_copy(bound.feeds[port.name], own, adapted.get(port)) for port, own in inputs]
        after = [Copy(own, bound.fetches[port.name].reshape(own.shape)) for port, own in outputs]
        answer = BoundPolicyBatch(bound, before, after)
        answer.masks = masks
        answer.scores = [bound.fetches[p.name].reshape(count, p.width) for p in extra]
        is_one_call = self._runner.is_stateless and len(bound.calls) == 1
        if is_one_call and masks is None and not (before or after or extra):
            answer.only = bound.calls[0]
        else:
            self._runner.keep(answer)
        return answer


class _Taken:
    """
    The actions that agents take from the outputs of a model, as they are fed back.

    These are choices that exist and are allowed, and zero for numbers that are not finite.
    """

    def __init__(self, signature: Signature, masks: ChoiceMasks | None) -> None:
        self._masks = masks
        self._continuous = signature.num_actions - (0 if masks is None else len(masks.branches))
        starts = accumulate((port.width for port in signature.acting), initial=0)
        self._starts = dict(zip(signature.acting, starts, strict=False))

    def __call__(
        self, port: Port, given: Floats, rows: Rows | None, states: States | None
    ) -> Floats:
        taken = given.copy()
        if self._masks is not None:
            first = self._starts[port] - self._continuous
            choices = taken[:, max(-first, 0) :]
            if choices.shape[1]:
                self._masks.hold_some(choices, max(first, 0), rows, states)
        taken[~np.isfinite(taken)] = 0  # as they are answered
        return taken


def is_of_guest(policy: Policy) -> bool:
    """Return True if a guest brought the model of `policy`, and pays for its runs."""
    policy = _unmasked(policy)
    return isinstance(policy, OnnxPolicy) and policy.is_of_guest


def only_call(policy: Policy, batch: Batch) -> Call | None:
    """Return the one function that answers a batch as `policy` did, None if there is more to do."""
    return policy.only_call(batch) if isinstance(policy, OnnxPolicy) else None


def session_bytes(policy: Policy) -> int:
    """Return the bytes charged to the guest for the model of `policy`."""
    policy = _unmasked(policy)
    return policy.session_bytes if isinstance(policy, OnnxPolicy) else 0


def takes_masks(policy: Policy) -> bool:
    """Return whether the model of `policy` has an input for masks."""
    policy = _unmasked(policy)
    return isinstance(policy, OnnxPolicy) and policy.takes_masks


class PolicyMoves:
    """
    Sessions whose policies are replaced, with the agents that move to the new policies.

    `are_whole` is False once agents begin with recurrent states of zeros, because the former
    policy's do not fit.
    """

    def __init__(self) -> None:
        self.are_whole = True
        self._keys: dict[tuple[int, int], tuple[Policy, Policy, list[int]]] = {}

    def note(self, former: Policy, policy: Policy, key: int) -> None:
        """Note that `policy` replaces `former` for the session `key`."""
        if former is policy:  # noted before, and then cut off
            return
        pair = id(former), id(policy)
        noted = self._keys.get(pair)
        if noted is None:
            noted = self._keys[pair] = former, policy, []
        noted[2].append(key)

    def make(self) -> None:
        """Move the agents to the new policies, and let the embedder's old policies forget them."""
        while self._keys:
            pair, (former, policy, keys) = next(iter(self._keys.items()))
            self.are_whole &= _hand_over(_unmasked(former), _unmasked(policy), keys)
            del self._keys[pair]  # last: what is cut off is made again


def _hand_over(former: Policy, policy: Policy, keys: list[int]) -> bool:
    """Return False if agents begin with states of zeros, see `PolicyMoves`."""
    if isinstance(policy, OnnxPolicy) and isinstance(former, OnnxPolicy):
        return policy.take_from(former, keys)
    if not (isinstance(policy, ObjectPolicy) and policy.is_made_of(former)):
        while keys:
            former.forget(keys.pop())
    return not (isinstance(policy, OnnxPolicy) and policy.is_recurrent)


def _unmasked(policy: Policy) -> Policy:
    return policy.policy if isinstance(policy, MaskedPolicy) else policy


def _require_choices(signature: Signature, choices: int) -> None:
    """Raise InvalidArguments unless a model takes the masks of this number of choices."""
    widths = [port.width for port in signature.roles.masks]
    if widths != [choices]:
        raise InvalidArguments(
            f"the model takes masks of {', '.join(map(str, widths))} choices, the agents have"
            f" {choices}"
        )


def _copy(feed: Floats, columns: Floats, adaptation: Adaptation | None) -> Copy:
    """Return the copy of columns, [n, width], to a feed, [n, *shape]."""
    if adaptation is None:
        return Copy(feed.reshape(columns.shape), columns)
    shaped = columns.reshape(len(columns), *adaptation.shape)
    order = (0, *(1 + axis for axis in adaptation.order))
    return Copy(feed, shaped.transpose(order), adaptation.factor)


def _in_place(ports: Sequence[Columns]) -> tuple[dict[str, Floats], list[Columns]]:
    """
    Return the arrays of the ports whose columns are contiguous, by name, and the other ports.

    The arrays, float32, [n, *shape], are views of the columns.
    """
    views = {
        port.name: columns.reshape(len(columns), *port.shape)
        for port, columns in ports
        if columns.flags.c_contiguous
    }
    return views, [(port, columns) for port, columns in ports if port.name not in views]
