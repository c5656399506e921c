"""What a model holds while it is loaded is bounded and counted, not the bytes of its file."""

from pathlib import Path

import numpy as np
import pytest
from tests.unit import policy_models as build
from tests.unit.policy_models import node, numpy_helper, port

from arkml.limits import Limits
from arkml.policies.model_cache import ModelCache
from arkml.policies.onnx_model import FOLDED_BYTES
from arkml.policies.vetting import examine

MIB = 1 << 20


def integers(name, values):
    return numpy_helper.from_array(np.array(values, np.int64), name)


def filled(count, size):
    """A model whose rows look into `count` constants of some `size` floats, made by itself."""
    nodes = [node("Cast", "x", "i", to=7)]
    for number in range(count):
        nodes.append(node("ConstantOfShape", f"s{number}", f"z{number}"))
        nodes.append(node("Gather", f"z{number} i", f"g{number}", axis=0))
    nodes.append(node("Sum", " ".join(f"g{number}" for number in range(count)), "y"))
    weights = [integers(f"s{number}", [size + number]) for number in range(count)]
    return build.model(nodes, [port("x", "N", 1)], [port("y", "N", 1)], weights)


LARGE = filled(7, 15 * MIB // 4)


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4_096


def test_a_small_file_does_not_become_a_large_session():
    models = ModelCache()
    kept = [models.version(LARGE)]  # what all sessions share grows with the first
    before = resident()
    kept += [models.version(LARGE) for _ in range(4)]

    assert len(LARGE) < 1_000
    assert resident() - before < 4 * 8 * MIB


def test_a_session_counts_with_what_its_runs_need():
    assert ModelCache().version(LARGE).load(None).session_bytes > 7 * 15 * MIB


def test_small_constants_are_computed_once():
    vetted = examine(filled(3, 1_000), Limits())

    assert vetted.folded(FOLDED_BYTES) == (4_008, 12_012)


@pytest.mark.parametrize("most", [12_011, 8_004])
def test_constants_are_kept_up_to_a_sum(most):
    assert examine(filled(3, 1_000), Limits()).folded(most) == (4_004, 8_004)
