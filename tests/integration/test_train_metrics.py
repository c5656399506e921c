"""What a run reports, beside the table in docs/training_settings.md."""

import contextlib
import re

import pytest
from tests.documented_metrics import documented
from tests.integration.command_line import GUESTS
from tests.integration.hive_service import Service

import arkml
from arkml.hive.embedded import EmbeddedHive
from arkml.learning.event_files import read_events
from arkml.reports.report_page import make_page
from arkml.reports.report_runs import read_from_directory
from arkml.server.metrics_store import read_curves

pytestmark = pytest.mark.learns

QUICK = {
    "sac": {"hidden": 16, "batch_size": 32, "memory_min_size": 320},
    "ppo": {"hidden": 16, "batch_size": 64, "rollout_rows": 256, "epochs": 2},
}
PLAYED = {"sac": "c_reach", "ppo": "c_choosers"}
MINUTES = 4.0  # at most: it ends when all metrics have come


@pytest.fixture(scope="module", params=["sac", "ppo"])
def learned(request, tmp_path_factory):
    """A run that has reported everything that it is sure to report, its learner and branches."""
    learner, branches, seen = request.param, [], set()
    directory = tmp_path_factory.mktemp(learner) / "out"

    def observe(state):
        seen.update(state.metrics)
        branches[:] = branches_of(state.metrics)
        return not documented(learner, branches, certain=True) <= seen

    result = arkml.train(
        GUESTS / f"{PLAYED[learner]}.wasm", minutes=MINUTES, settings=QUICK[learner],
        eval_every=None, progress=observe, directory=directory,
    )  # fmt: skip
    return learner, branches, directory / "hive", result.run_id


def branches_of(names):
    """The numbers of choices of branches whose shares are among these metrics."""
    found = {}
    for name in names:
        if name.startswith("actions/branch_"):
            branch, choice = (part for part in name.split("_")[1:] if part.isdecimal())
            found[int(branch)] = max(found.get(int(branch), 0), int(choice) + 1)
    return [found[branch] for branch in sorted(found)]


def reported(data, run):
    names = read_curves(data / "runs" / run)
    return {name for name in names if not name.startswith("guest/")}


def test_a_run_reports_the_metrics_that_are_documented(learned):
    learner, branches, data, run = learned
    names = reported(data, run)

    assert names >= documented(learner, branches, certain=True)
    assert names <= documented(learner, branches)
    assert bool(branches) == (learner == "ppo")


def test_the_events_for_tensorboard_and_the_report_have_them_all(learned):
    _, _, data, run = learned
    names = reported(data, run)
    paths = (data / "runs" / run / "events").iterdir()
    tags = {value.tag for path in paths for one in read_events(path) for value in one.summary.value}
    page = make_page(read_from_directory(data, [run], pytest.fail), "test").decode()

    assert names <= tags
    (unchanged,) = re.findall(r"metrics stayed the same: (.*?)</p>", page)
    assert {name for name in names if f">{name}<" not in page and name not in unchanged} == set()


def test_the_hive_has_histograms_and_the_sessions_of_the_run(learned):
    __, _, data, run = learned
    hive = EmbeddedHive(data)
    with contextlib.closing(hive), contextlib.closing(Service(hive)) as service:
        listed = service.get(f"/runs/{run}/histograms").json()
        names = [one["name"] for one in listed["histograms"]]
        one = service.get(f"/runs/{run}/histograms", params={"name": names[-1]}).json()
        details = service.get(f"/runs/{run}").json()
    actions, features = details["run"]["actions"], details["run"]["features"]

    assert names == [
        *(f"actions/{number}" for number in range(actions)),
        *(f"features/{number}" for number in range(features)),
    ]
    assert listed["times"] == []
    assert len(one["counts"]) == len(one["times"]) == len(one["rows"]) >= 1
    assert {len(counts) + 1 for counts in one["counts"]} == {len(one["edges"])}
    assert min(map(sum, one["counts"])) > 0
    assert details["sessions"][0]["role"] == "act"
