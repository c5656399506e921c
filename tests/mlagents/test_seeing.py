"""The trainer of ML-Agents sees entities, grids and images of guests, and its files act here."""

import json
import sysconfig
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from tests.integration.command_line import GUESTS

import arkml

pytestmark = pytest.mark.mlagents
HERE = Path(__file__).parent
SETTINGS = HERE / "seeing.yaml"
PACKAGES = sysconfig.get_paths()["purelib"]
TERMINAL, INTERRUPTED = 1, 2
PLANE = ["NONE", "TRANSLATIONAL_EQUIVARIANCE", "TRANSLATIONAL_EQUIVARIANCE"]


@dataclass(frozen=True)
class Kind:
    """The observations of a guest as ML-Agents' sensors have them, and what encodes them there."""

    observations: list
    encoders: set
    others: set

    @property
    def shapes(self):
        return [tuple(shape) for shape, *_ in self.observations]


KINDS = {
    "sorter": Kind(
        [
            [[4], ["NONE"], "DEFAULT", "me"],
            [[1], ["NONE"], "DEFAULT", "tiles_count"],
            [[20, 6], ["VARIABLE_SIZE", "NONE"], "DEFAULT", "tiles"],
        ],
        {"EntityEmbedding", "ResidualSelfAttention", "VectorInput"},
        {"SimpleVisualEncoder"},
    ),
    "minatar_breakout": Kind(
        [[[4, 10, 10], PLANE, "DEFAULT", "screen"]],
        {"SmallVisualEncoder"},
        {"ResidualSelfAttention", "VectorInput"},
    ),
    "gallery": Kind(
        [[[3, 64, 64], PLANE, "DEFAULT", "view"]],
        {"SimpleVisualEncoder"},
        {"ResidualSelfAttention", "VectorInput"},
    ),
}


@dataclass(frozen=True)
class Trained:
    """What a trainer told of a guest, and where it left the policy."""

    name: str
    told: dict
    folder: Path

    @property
    def guest(self):
        return GUESTS / f"c_{self.name}.wasm"

    @property
    def kind(self):
        return KINDS[self.name]

    @property
    def policy(self):
        return self.told["policies"][self.name]

    @property
    def returns(self):
        """The mean returns of its summaries."""
        return self.told["means"]["Environment/Cumulative Reward"]

    @property
    def exported(self):
        (file,) = (self.folder / self.name).glob("*.onnx")
        return file


@pytest.fixture(scope="module")
def train(originals, tmp_path_factory):
    """Trains by the settings, once for each guest."""

    @cache
    def trained(name):
        folder = tmp_path_factory.mktemp(name)
        guest = GUESTS / f"c_{name}.wasm"
        printed = originals.run("python", HERE / "trainer.py", PACKAGES, guest, SETTINGS, folder)
        return Trained(name, json.loads(printed.splitlines()[-1]), folder)

    return trained


def sensed(kind, rows):
    """Rows of a guest as the sensors of ML-Agents have them, turned by hand."""
    if kind.shapes[0] == (4,):
        return [rows[:, :4], rows[:, 4:5], rows[:, 5:].reshape(-1, *kind.shapes[2])]
    ((channels, height, width),) = kind.shapes
    planes = rows.reshape(-1, height, width, channels).transpose(0, 3, 1, 2)
    return [planes / np.float32(255 if channels == 3 else 1)]


def chosen_by_torch(originals, trained, rows, file):
    """The choices of the trainer's own network for rows, the likeliest of each branch."""
    seen = {f"obs_{i}": values for i, values in enumerate(sensed(trained.kind, rows))}
    np.savez(file, **seen)
    originals.run(
        "python", HERE / "acting.py", PACKAGES, trained.guest, SETTINGS, trained.folder, file
    )
    with np.load(file) as answer:
        return answer["actions"]


@pytest.mark.parametrize("name", KINDS)
def test_a_trainer_encodes_the_parts_of_a_row_by_their_kinds(train, name):
    trained = train(name)
    modules = set(trained.policy["modules"])

    assert trained.policy["observations"] == trained.kind.observations
    assert trained.kind.encoders <= modules
    assert not trained.kind.others & modules
    assert trained.told["means"]["Losses/Policy Loss"]


@pytest.mark.parametrize("name", KINDS)
def test_its_file_chooses_in_our_host_what_its_network_chooses(originals, train, tmp_path, name):
    trained = train(name)
    played = arkml.record(trained.guest, trained.exported, tmp_path / "rows.npz", frames=80)
    with np.load(played.path) as rows:
        acts = ~np.isin(rows["state"], (TERMINAL, INTERRUPTED))  # none follows on an end
        features, actions = rows["features"][acts], rows["action"][acts]
    theirs = chosen_by_torch(originals, trained, features, tmp_path / "asked.npz")

    assert len(actions) > 1000
    assert len(np.unique(actions, axis=0)) > 1
    np.testing.assert_array_equal(actions, theirs)


@pytest.mark.parametrize(
    ("name", "begins", "reaches"), [("sorter", 0.1, 0.3), ("gallery", -0.1, 0.05)]
)
def test_entities_and_views_are_learned(train, name, begins, reaches):
    first, *_, before, last = train(name).returns

    assert first < begins  # 0.03 and -0.23 by chance
    assert (before + last) / 2 > reaches


def test_a_board_is_learned_and_played_here_with_the_return_that_the_trainer_saw(train):
    trained = train("minatar_breakout")
    first, *_, last = trained.returns
    played = arkml.evaluate(trained.guest, trained.exported, episodes=400, deterministic=False)

    assert last > 1.5 * first
    assert played.mean_return == pytest.approx(last, rel=0.35)
