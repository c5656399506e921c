"""The learner of examples/evolution: found by its entry point, it trains a guest."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import arkml
from arkml.errors import ArkmlError

pytestmark = pytest.mark.learns

EXAMPLE = Path(__file__).parents[2] / "examples" / "evolution"
REACH = Path(__file__).parents[2] / "fixtures" / "guests" / "c_reach.wasm"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install a copy of the example where learners import it, from the files that it has."""
    source, site = shutil.copytree(EXAMPLE, tmp_path / "evolution"), tmp_path / "site"
    subprocess.run(
        [
            sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation",
            "--no-index", "--disable-pip-version-check", "--target", site, source,
        ],
        check=True,
    )  # fmt: skip
    shutil.rmtree(source)
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.syspath_prepend(site)  # as an installed package is, here and in learners


@pytest.mark.usefixtures("installed")
def test_a_learner_of_an_installed_package_trains_a_guest(tmp_path):
    result = arkml.train(
        REACH,
        minutes=4,
        until_return=-24.0,
        eval_every=None,
        settings={"algorithm": "evolution"},
        directory=tmp_path / "out",
        seed=1,
    )

    assert result.end_reason == "return"
    evaluated = arkml.evaluate(REACH, result.best.onnx, episodes=50)
    assert evaluated.mean_return > -40.0  # -52 at random


def test_a_learner_that_is_not_installed_is_refused_with_those_that_are(tmp_path):
    with pytest.raises(ArkmlError, match=r"algorithm is 'evolutoin': this hive has auto, .*sac"):
        arkml.train(
            REACH, frames=10, settings={"algorithm": "evolutoin"}, directory=tmp_path / "out"
        )
