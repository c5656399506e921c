"""How a policy acts in a web page: compiled to WebAssembly, or by a runtime in the folder."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from arkml.errors import InvalidArguments, ModelRejected
from arkml.hive.protocol.replay_messages import ShownBehavior
from arkml.policies.kernel import hosted, render
from arkml.policies.signature import Wanted
from arkml.publishing.rehearsal import Cast
from arkml.publishing.web_runtime import PACKAGE
from arkml.runtime.compiled_module import CompiledModule
from arkml.sessions.branches import DeclaredBranches
from arkml.sessions.declarations import behaviors_in

Widths = tuple[int, int | None]
"""Numbers of features and of actions, None for any number."""

_DIGEST_BYTES = 32


class Acting(NamedTuple):
    """
    How a policy acts in a web page.

    Attributes:
        kernel: The compiled policy, a wasm module.
        branches: The branches of the agents' actions.
        model: The model that a runtime runs, None for a kernel that computes everything.
        rows: The only number of rows that the model takes, None for any number.

    """

    kernel: bytes
    branches: list[int]
    model: bytes | None = None
    rows: int | None = None

    def runtime(self, name: str) -> dict[str, Any] | None:
        """Return what a page must know to run the model, a file, as JSON values; None without."""
        return None if self.model is None else {"model": noted(name, self.model), "rows": self.rows}


class ActingPolicy:
    """
    A policy for a web page, compiled once for each pair of features and actions.

    It is the file `policy`, whose `outputs` have the actions, or the first ones that can be.
    """

    def __init__(
        self,
        cast: Cast,
        policy: bytes,
        outputs: tuple[str, ...],
        declared: DeclaredBranches,
        *,
        has_runtime: bool,
    ) -> None:
        self._cast, self._declared, self._has_runtime = cast, declared, has_runtime
        self._policy, self._outputs = policy, outputs
        self._made: dict[Wanted, Acting] = {}

    def of_one(self, widths: Iterable[Widths]) -> Acting:
        """
        Return how the policy acts, for the first of these pairs (features, actions) that it fits.

        Raises InvalidArguments if it fits none of them, and ModelRejected if it cannot be compiled
        and there is no runtime.
        """
        cast = self._cast
        faults: list[str] = []
        for features, actions in dict.fromkeys(widths):
            branches = self._declared.of_rows(features, actions, None)
            parts = self._declared.parts_of(features, actions)
            try:
                wanted = Wanted(
                    features, actions, branches, self._outputs, cast.deterministic, parts=parts
                )
                if wanted not in self._made:
                    self._made[wanted] = self._acting(wanted)
                return self._made[wanted]
            except ModelRejected:
                raise
            except InvalidArguments as error:
                faults.append(str(error))
        raise InvalidArguments(f"the policy does not fit {cast.name}: {'; '.join(faults)}")

    def _acting(self, wanted: Wanted) -> Acting:
        limits = self._cast.limits
        try:
            return Acting(render(self._policy, wanted, limits=limits), list(wanted.branches))
        except ModelRejected as error:
            refusal = ModelRejected(f"a page cannot act by this policy: {error}")
        try:
            model = hosted(self._policy, wanted, limits=limits)
        except ModelRejected:
            raise refusal from None
        if not self._has_runtime:
            raise ModelRejected(
                f"{refusal}, and pages by {PACKAGE}, 14 MB: name the folder of that npm package,"
                f" --runtime node_modules/{PACKAGE}"
            )
        return Acting(model.kernel, list(wanted.branches), model.model, model.rows)


def declared_widths(module: CompiledModule) -> dict[str, Widths]:
    """Return the numbers of features and actions that a module declares, by behavior."""
    widths: dict[str, Widths] = {}
    for name, one in behaviors_in(module.info.spec).items():
        continuous, discrete = one.actions.continuous, len(one.actions.discrete)
        if one.num_features is not None:
            told = continuous is not None
            widths[name] = one.num_features, (continuous or 0) + discrete if told else None
    return widths


def declared_actions(module: CompiledModule) -> list[dict[str, Any]]:
    """Return the declared behaviors as a page tells them apart by numbers, as JSON values."""
    return [
        {
            "name": name,
            "features": one.num_features,
            "continuous": one.actions.continuous,
            "branches": list(one.actions.discrete),
        }
        for name, one in behaviors_in(module.info.spec).items()
    ]


def widths_of(behavior: ShownBehavior) -> Widths:
    """Return the numbers of features and actions of a behavior."""
    features = sum(math.prod(part.shape) for part in behavior.observations)
    return features, len(behavior.low) + len(behavior.branches)


def noted(name: str, data: bytes) -> dict[str, str]:
    """Return a file's name, and the SHAKE128 of its bytes, by which a page checks it."""
    return {"name": name, "digest": hashlib.shake_128(data).hexdigest(_DIGEST_BYTES)}
