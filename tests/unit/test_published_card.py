"""The card of a published folder: what hubs read, and how the policy was trained."""

import logging

import pytest
import yaml
from tests.integration.duel_guest import duel
from tests.published_policies import noisy, scoring
from tests.unit.test_published_guest import GUESTS
from wasmtime import wat2wasm

import arkml
from arkml.hive.protocol.run_origin import RunOrigin
from arkml.hive.protocol.runs import BEST_NAME, DOCUMENT_NAME, PUBLISHED_NAME, Best, RunRequest
from arkml.hive.protocol.settings import Settings
from arkml.policies.cervo import pack_onnx
from arkml.publishing import rehearsal
from arkml.server.document import Document, write_new
from arkml.server.run_origin import RunStart

GUEST = GUESTS / "c_reach.wasm"
DUEL = wat2wasm(duel("left", "right", rivals=True))
LEARNED, OTHER = scoring(4, 2), scoring(4, 3)


@pytest.fixture(autouse=True)
def a_second_of_play(monkeypatch):
    """No test of a card is about the frames that are played for the page."""
    monkeypatch.setattr(rehearsal, "FRAMES", 60)


@pytest.fixture
def training(tmp_path):
    """The folder of a training, as `arkml train` leaves it."""
    return trained(tmp_path, Settings(4, 2, seed=7, gamma=0.9))


def trained(tmp_path, settings):
    best = Best("evaluation", 12.5, 31, 4_096)
    run = Document("abc", RunRequest("reach", "reach", settings), 10**18, rows=5_000, best=best)
    origin = RunOrigin("arkml train secret/path.wasm", "my-laptop", versions={"jax": "0.10"})
    runs = tmp_path / "training" / "hive" / "runs"
    runs.mkdir(parents=True)
    write_new(runs, run, RunStart(origin=origin))
    (runs / "abc" / BEST_NAME).write_bytes(LEARNED)
    (runs / "abc" / PUBLISHED_NAME / "0000000044.onnx").write_bytes(OTHER[:-1] + b"x")
    (tmp_path / "training" / "reach.onnx").write_bytes(LEARNED)
    return tmp_path / "training"


def test_the_card_of_two_behaviors_tells_whose_scores_they_are_and_each_training(tmp_path):
    folder = trained(tmp_path, Settings(2, 1, seed=7))
    best = folder / "hive" / "runs" / "abc" / BEST_NAME
    for path in (best, folder / "reach.onnx"):
        path.write_bytes(scoring(2, 1))
    site = arkml.publish(
        DUEL, folder / "reach.onnx", tmp_path / "site", others={"right": scoring(3, 1)}, episodes=2
    )
    text = (site.folder / "README.md").read_text()
    scores, rest = text.split("## Scores")[1].split("## Observations")
    told = rest.split("## Training")[1].split("## License")[0]

    assert "Of the agents of left, among those of right." in scores
    assert told.index("Behavior left:") < told.index("| rows of the run | 5,000 |")
    assert told.index("| rows of the run") < told.index("Behavior right:")
    assert told.rstrip().endswith("The author does not say how the policy was trained.")


def card_of(tmp_path, policy, **options):
    options = {"episodes": 0, **options}
    site = arkml.publish(GUEST, policy, tmp_path / "site", **options)
    _, front, text = (site.folder / "README.md").read_text().split("---\n", 2)
    return yaml.safe_load(front), text, site


def test_the_card_tells_the_run_that_lies_beside_the_policy(tmp_path, training):
    _, text, _ = card_of(tmp_path, training / "reach.onnx")

    for line in (
        "| algorithm | sac |",
        "| run | reach, begun on 2001-09-09 |",
        "| rows of the run | 5,000 |",
        "| version | 31, after 4,096 updates: the best by evaluation |",
        "| mean return by which it was chosen | 12.5 |",
        "| seed | 7 |",
        "| settings that are no defaults | gamma=0.9 |",
        "| versions | jax 0.10 |",
    ):
        assert line in text
    assert "secret" not in text
    assert "laptop" not in text


@pytest.mark.parametrize("place", [BEST_NAME, "reach.crvo"])
def test_the_policy_may_lie_in_the_run_or_be_packed(tmp_path, training, place):
    path = training / "hive/runs/abc" / place if place == BEST_NAME else training / place
    if place != BEST_NAME:
        path.write_bytes(pack_onnx(LEARNED))

    assert "| algorithm | sac |" in card_of(tmp_path, path)[1]


def test_a_policy_of_another_run_is_not_told_as_of_this_one(tmp_path, training):
    (training / "reach.onnx").write_bytes(noisy(4, 2))
    _, text, _ = card_of(tmp_path, training / "reach.onnx")

    assert "The author does not say how the policy was trained." in text


def test_words_of_the_author_come_before_those_of_the_run(tmp_path, training):
    _, text, _ = card_of(tmp_path, training / "reach.onnx", trained="For two days.")

    assert "For two days." in text
    assert "| algorithm" not in text


def test_a_damaged_run_is_logged_and_tells_nothing(tmp_path, training, caplog):
    (training / "hive/runs/abc" / DOCUMENT_NAME).write_text("{")
    with caplog.at_level(logging.WARNING):
        _, text, _ = card_of(tmp_path, training / "reach.onnx")

    assert "The author does not say how the policy was trained." in text
    assert "runs/abc, cannot be read" in caplog.text


@pytest.mark.parametrize(
    ("license", "front"),
    [
        ("MIT", {"license": ["mit"]}),
        ("MIT OR GPL-3.0-or-later", {"license": ["mit", "gpl-3.0"]}),
        ("My-1.0", {"license": "other", "license_name": "My-1.0"}),
        ("", {}),
    ],
)
def test_a_license_is_told_as_hubs_take_it(tmp_path, license, front):
    found, _, _ = card_of(tmp_path, LEARNED, license=license)

    assert {key: value for key, value in found.items() if key.startswith("license")} == front


def test_scores_are_told_with_their_seed(tmp_path):
    title = 'A "title"\n| of ` two 🎯 lines'
    front, text, site = card_of(tmp_path, LEARNED, episodes=2, seed=5, title=title)
    (found,) = front["model-index"]
    (result,) = found["results"]
    value = f"{site.scores.mean_return:.2f} +/- {site.scores.standard_deviation:.2f}"

    assert found["name"] == result["dataset"]["name"] == title.replace("\n", " ")
    assert result["metrics"] == [
        {
            "type": "mean_reward",
            "name": "mean_reward",
            "value": value,
            "args": {"episodes": 2, "seed": 5},
        }
    ]
    assert 'title="A &quot;title&quot; | of ` two 🎯 lines"' in text
