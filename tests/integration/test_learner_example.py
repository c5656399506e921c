"""The learner of examples/evolution: found by its entry point, it trains a guest."""

import os
from pathlib import Path

import pytest

import arkml
from arkml.errors import ArkmlError

pytestmark = pytest.mark.learns

EXAMPLE = Path(__file__).parents[2] / "examples" / "evolution"
REACH = Path(__file__).parents[2] / "fixtures" / "guests" / "c_reach.wasm"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Put the example where learners import it, with the metadata that an installer writes."""
    metadata = tmp_path / "site" / "arkml_evolution-0.1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: arkml-evolution\nVersion: 0.1.0\n"
    )
    (metadata / "entry_points.txt").write_text(
        "[arkml.learners]\nevolution = evolution:Evolution\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(metadata.parent), str(EXAMPLE)]))


@pytest.mark.usefixtures("installed")
def test_a_learner_of_an_installed_package_trains_a_guest(tmp_path):
    result = arkml.train(
        REACH,
        minutes=4,
        until_return=-24.0,
        settings={"algorithm": "evolution"},
        directory=tmp_path / "out",
        seed=1,
    )

    assert result.ended == "return"
    evaluated = arkml.evaluate(REACH, result.best.onnx, episodes=50)
    assert evaluated.mean_return > -40.0  # -52 at random


def test_a_learner_that_is_not_installed_is_refused_with_those_that_are(tmp_path):
    with pytest.raises(ArkmlError, match=r"algorithm is 'evolutoin': this hive has auto, .*sac"):
        arkml.train(
            REACH, frames=10, settings={"algorithm": "evolutoin"}, directory=tmp_path / "out"
        )
