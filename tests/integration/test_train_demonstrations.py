"""Demonstrations of a training: its run has them before a guest plays, each row once."""

import json

import numpy as np
import pytest
from tests.integration.command_line import GUESTS, arkml
from tests.integration.scripted_hive import ScriptedHive, cut, cut_after, forget, status, take
from tests.integration.test_cli_record import to_the_target

from arkml import record, train
from arkml.abi.codes import EpisodeState
from arkml.demonstrations.dataset import DemonstrationSet, row_columns
from arkml.demonstrations.demonstration_files import read_demonstrations, write_demonstrations
from arkml.hive.client import HiveClient
from arkml.hive.protocol.runs import BATCH_ROWS

SPARSE, PENDULUM, CORRIDOR = (
    GUESTS / f"c_{name}.wasm" for name in ("sparse_reach", "pendulum_plain", "corridor")
)
AGENTS = 16
QUICK = {
    "algorithm": "drawn",
    "hidden": 32,
    "batch_size": 64,
    "memory_min_size": 640,
    "updates_per_row": 0.1,
}


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The file of 20 episodes that a good policy has played."""
    path = tmp_path_factory.mktemp("shown") / "reach.npz"
    record(SPARSE, to_the_target, path, episodes=20)
    return path


def test_a_training_learns_from_demonstrations_and_gets_them_once(tmp_path, shown):
    there = len(read_demonstrations(shown))
    options = {"demonstrations": shown, "directory": tmp_path / "out", "settings": QUICK}
    first = train(SPARSE, frames=10, **options)
    second = train(SPARSE, frames=10, resume=True, **options)

    assert there <= first.rows <= there + 10 * AGENTS
    assert there < second.rows <= there + 20 * AGENTS < 2 * there
    assert first.updates > 0
    assert first.warnings == second.warnings == ()


def test_other_demonstrations_are_sent_to_a_training_that_is_resumed(tmp_path, shown):
    other = tmp_path / "other.npz"
    more = record(SPARSE, to_the_target, other, frames=30).rows
    there = len(read_demonstrations(shown))
    options = {"directory": tmp_path / "out", "settings": QUICK, "frames": 10}
    train(SPARSE, demonstrations=shown, **options)
    second = train(SPARSE, demonstrations=other, resume=True, **options)

    assert there + more <= second.rows <= there + more + 20 * AGENTS


def test_the_command_warns_of_rows_that_it_leaves_out(tmp_path, shown):
    with np.load(shown) as file:
        arrays = dict(file)
    arrays["features"][5] = np.nan
    np.savez(tmp_path / "rows.npz", **arrays)
    config = tmp_path / "quick.json"
    config.write_text(json.dumps(QUICK))
    ended = arkml(
        "train", SPARSE, "--frames", "10", "--demonstrations", tmp_path / "rows.npz",
        "--out", tmp_path / "out", "--config", config, "--limit", "run_seconds=none", "--json",
    )  # fmt: skip

    assert ended.status == 0, ended.err
    assert 0 <= ended.json["rows"] - (len(arrays["agent"]) - 1) <= 10 * AGENTS
    assert "1 of" in ended.err
    assert "are not finite: left out" in ended.err


@pytest.mark.parametrize(
    ("guest", "words", "message"),
    [
        (
            PENDULUM,
            (),
            "the demonstrations have 4 features and 2 actions, and run 'hard_pendulum' has 3 and 1",
        ),
        (
            SPARSE,
            ("--algorithm", "ppo"),
            "learns by ppo, from rows of its own policy only, and not from demonstrations: the"
            " algorithm sac does",
        ),
    ],
    ids=["widths", "ppo"],
)
def test_a_run_that_cannot_learn_from_them_is_refused_with_the_reason(
    tmp_path, shown, guest, words, message
):
    refused = arkml(
        "train", guest, "--frames", "10", "--demonstrations", shown, "--out", tmp_path / "out",
        "--json", *words,
    )  # fmt: skip

    assert refused.status == 2, refused.err
    assert message in refused.json["error"]


def test_a_file_that_is_damaged_is_refused_before_anything_is_made(tmp_path):
    (tmp_path / "rows.npz").write_bytes(b"PK\x03\x04 nothing")
    refused = arkml(
        "train", SPARSE, "--demonstrations", tmp_path / "rows.npz", "--out", tmp_path / "out"
    )

    assert refused.status == 2
    assert "is not an .npz file of demonstrations" in refused.err
    assert not (tmp_path / "out").exists()


def test_demonstrations_of_other_branches_are_refused(tmp_path):
    path = tmp_path / "rows.npz"
    record(CORRIDOR, lambda rows: np.zeros((len(rows), 2)), path, frames=3)
    columns = read_demonstrations(path).columns
    other = tmp_path / "other.npz"
    write_demonstrations(other, DemonstrationSet(columns, (4, 5)))
    refused = arkml("train", CORRIDOR, "--demonstrations", other, "--out", tmp_path / "out")

    assert refused.status == 2
    assert "have branches of [4, 5] choices, and run 'corridor' has [4, 4]" in refused.err


@pytest.fixture
def hive():
    made = ScriptedHive()
    yield made
    made.close()


def rows(count):
    """Rows whose rewards count on, of one agent."""
    numbers = np.arange(count)
    state = np.full(count, EpisodeState.RUNNING)
    state[0] = EpisodeState.INITIAL
    return row_columns(
        np.zeros(count), numbers, state, numbers, np.ones((count, 3)), np.ones((count, 2))
    )


@pytest.mark.parametrize(
    "replies",
    [[], [status(503), cut, cut_after], [forget], [cut_after, forget, status(429)]],
    ids=["plain", "cut", "forgotten", "all"],
)
def test_rows_arrive_once_and_in_order_whatever_a_hive_answers(hive, replies):
    hive.replies = list(replies)
    count = 2 * BATCH_ROWS + 100
    with HiveClient(hive.locate) as client:
        upload = client.demonstrate("run", rows(count), "ab12").result(300)
        client.end_upload(upload).result(300)

    assert hive.rewards() == list(map(float, range(count)))
    assert [len(body) for body in hive.bodies.values()] == [BATCH_ROWS, BATCH_ROWS, 100]
    assert (upload.ledger.accepted, upload.ledger.refused) == (count, 0)
    assert len(hive.left) == 1


def test_an_upload_that_was_cut_off_continues_where_it_ended(hive):
    count = 2 * BATCH_ROWS + 100
    hive.replies = [take, status(403)]
    with HiveClient(hive.locate) as client:
        client.demonstrate("run", rows(count), "ab12").exception(300)
    before = len(hive.bodies)
    with HiveClient(hive.locate) as client:
        upload = client.demonstrate("run", rows(count), "ab12").result(300)

    assert before == 1
    assert hive.rewards() == list(map(float, range(count)))
    assert upload.ledger.accepted == count - BATCH_ROWS


def test_two_hosts_that_send_the_same_rows_at_once_send_them_once(hive):
    count = 3 * BATCH_ROWS
    with HiveClient(hive.locate) as one, HiveClient(hive.locate) as other:
        uploads = [client.demonstrate("run", rows(count), "ab12") for client in (one, other)]
        for upload in uploads:
            upload.result(300)

    assert hive.rewards() == list(map(float, range(count)))
