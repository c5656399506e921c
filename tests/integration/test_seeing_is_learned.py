"""What is learned by attention and convolutions, and what plain numbers do not show a network."""

import numpy as np
import pytest
from tests.integration.command_line import GUESTS

import arkml

pytestmark = pytest.mark.slow

AGENTS = 64


def last_return(path, module, rows):
    """The mean return of training episodes at the end of a training of so many rows."""
    instances = AGENTS // 16
    result = arkml.train(
        GUESTS / module,
        frames=rows // AGENTS,
        instances=instances,
        directory=path,
        eval_every=None,
        seed=1,
    )
    return float(np.mean(result.training_curve.mean_returns[-3:]))


def test_tiles_are_sorted_as_entities_and_not_as_plain_numbers(tmp_path):
    """0.94 and 0.08 after 500,000 rows were measured."""
    seen = last_return(tmp_path / "seen", "c_sorter.wasm", 500_000)
    flat = last_return(tmp_path / "flat", "c_sorter_flat.wasm", 500_000)

    assert seen >= 0.7
    assert flat <= 0.3
