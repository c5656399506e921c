"""The fuzz targets: each with its inputs, and the check that holds for all of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from tests.fuzz import boundary, hive_answers, hive_bodies, hive_connections, player, states
from tests.fuzz.checks import (
    check_container,
    check_model,
    check_module,
    check_side_channel,
)
from tests.fuzz.corpus import seeds_of
from tests.fuzz.kernels import check_kernel
from tests.fuzz.mutations import mutated
from tests.fuzz.onnx_models import check_against_onnxruntime, models
from tests.fuzz.wasm_modules import modules
from tests.fuzz.yaml_texts import TEXTS, check_yaml

Check = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class Target:
    """
    A kind of input that is not trusted.

    `opened` gives the check, which raises for an input that must not be. `examples` is the number
    of inputs in a part of `make test`. `folder` is that of the corpus, "" without one.
    """

    name: str
    inputs: SearchStrategy[Any]
    opened: Callable[[], AbstractContextManager[Check]]
    examples: int
    folder: str = ""


def _plain(check: Check) -> Callable[[], AbstractContextManager[Check]]:
    return lambda: nullcontext(check)


TARGETS = {
    target.name: target
    for target in (
        Target(
            "modules",
            st.one_of(modules(), mutated(seeds_of("modules"))),
            _plain(check_module),
            200,
            "modules",
        ),
        Target("models", mutated(seeds_of("models")), _plain(check_model), 250, "models"),
        Target("runs", models(), _plain(check_against_onnxruntime), 60, "models"),
        Target("kernels", models(), _plain(check_kernel), 60, "models"),
        Target(
            "containers",
            mutated(seeds_of("containers")),
            _plain(check_container),
            150,
            "containers",
        ),
        Target(
            "side_channels",
            mutated(seeds_of("side_channels")),
            _plain(check_side_channel),
            150,
            "side_channels",
        ),
        Target("boundary", boundary.CASES, boundary.boundary, 40),
        Target("hive", hive_bodies.CASES, hive_bodies.hive_bodies, 100),
        Target("connections", hive_connections.CASES, hive_connections.hive_connections, 30),
        Target("answers", hive_answers.CASES, hive_answers.hive_answers, 40),
        Target("yaml", TEXTS, _plain(check_yaml), 400),
        Target("player", player.CASES, player.player, 60),
        Target("states", states.CASES, states.states, 150),
    )
}


def explore(target: Target, check: Check, examples: int, number: int) -> None:
    """
    Check `examples` inputs that follow from `number`.

    Raises what the check raised, for the smallest input that hypothesis finds.
    """

    @seed(number)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @given(target.inputs)
    def examine(case: Any) -> None:
        check(case)

    examine()
