"""Versions of policies, which only grow, and the best of them."""

import hashlib
import math
import sys

import pytest

from arkml.errors import HiveError, HiveRefused
from arkml.hive.protocol.runs import RunRequest
from arkml.hive.protocol.settings import Settings
from arkml.server.best_policy import BestPolicy, mean
from arkml.server.document import Document
from arkml.server.learner_events import PolicyFile
from arkml.server.policy_versions import KEPT, RESERVED, PolicyVersions


@pytest.fixture
def run(tmp_path):
    (tmp_path / "policies").mkdir()
    return tmp_path


def published(run, policies, number, data=b"policy"):
    name = f"policies/{number}.onnx"
    (run / name).write_bytes(data)
    sha256 = hashlib.sha256(data).hexdigest()
    return policies.publish(PolicyFile(name, sha256, number))


def document():
    return Document("r", RunRequest("n", "g", Settings(3, 2)), 0)


def trained_to(best_policy, version, score):
    """Rate a version by training."""
    best_policy.keep_candidate(version)
    return best_policy.rate_training(version, score)


def test_versions_count_from_one(run):
    policies = PolicyVersions(run, 0)

    assert [published(run, policies, n).version for n in range(3)] == [1, 2, 3]


def test_versions_go_on_after_the_process(run):
    policies = PolicyVersions(run, 0)
    for number in range(3):
        published(run, policies, number, b"%d" % number)
    again = PolicyVersions(run, RESERVED)

    assert (again.last_version, again.newest.data, again.newest.n_opts) == (3, b"2", 2)
    assert published(run, again, 9).version == 4


@pytest.mark.parametrize("damage", [b"", b"{}", b"[", b'{"version": 7, "n_opts": 0, "sha256": ""}'])
def test_versions_never_go_back_whatever_was_lost(run, damage):
    policies = PolicyVersions(run, 0)
    published(run, policies, 1)
    (run / "published" / "newest.json").write_bytes(damage)
    again = PolicyVersions(run, RESERVED)

    assert again.newest is None
    assert published(run, again, 2).version == RESERVED + 1


def test_a_policy_that_is_not_what_it_says_is_refused(run):
    policies = PolicyVersions(run, 0)
    (run / "policies" / "1.onnx").write_bytes(b"policy")

    with pytest.raises(HiveError, match="sum"):
        policies.publish(PolicyFile("policies/1.onnx", "0" * 64, 1))
    with pytest.raises(HiveError, match="not a file within"):
        policies.publish(PolicyFile("../../etc/passwd", "0" * 64, 1))
    assert policies.last_version == 0


def test_old_policies_go_and_newer_ones_outlive_the_learners_own(run):
    policies = PolicyVersions(run, 0)
    for number in range(KEPT + 5):
        published(run, policies, number)
        (run / f"policies/{number}.onnx").unlink()

    assert len(list((run / "published").glob("*.onnx"))) == KEPT


@pytest.fixture
def rated(run):
    """Three versions, of which the second is the best: policies, document and their choice."""
    policies, known = PolicyVersions(run, 0), document()
    best_policy = BestPolicy(known, policies)
    for number in range(3):
        published(run, policies, number, b"%d" % number)
    known.best = best_policy.rate_evaluation(2, [1.0, 3.0])
    return policies, known, best_policy


def test_the_best_by_evaluation_is_kept(rated):
    policies, known, best_policy = rated

    assert (known.best.by, known.best.score, known.best.version) == ("evaluation", 2.0, 2)
    assert policies.read_best() == b"1"
    assert best_policy.rate_evaluation(1, [1.9]) is None
    assert policies.read_best() == b"1"


def test_of_two_with_the_same_score_the_later_one_is_the_best(rated):
    policies, known, best_policy = rated
    known.best = best_policy.rate_evaluation(3, [2.0])

    assert (known.best.score, known.best.version) == (2.0, 3)
    assert policies.read_best() == b"2"


def test_among_others_that_learn_the_best_is_what_it_plays_now(rated):
    policies, _, best_policy = rated
    worse = best_policy.rate_evaluation(1, [-5.0], best_return=-4.0)
    better = best_policy.rate_evaluation(3, [0.0], best_return=-4.0)

    assert worse is None
    assert (better.score, better.version) == (0.0, 3)
    assert policies.read_best() == b"2"


def test_training_tells_the_best_until_somebody_evaluates(run):
    policies, known = PolicyVersions(run, 0), document()
    best_policy = BestPolicy(known, policies)
    published(run, policies, 0)
    known.best = trained_to(best_policy, 1, 100.0)
    trained = known.best
    known.best = best_policy.rate_evaluation(1, [1.0])

    assert trained.by == "training"
    assert known.best.by == "evaluation"
    assert trained_to(best_policy, 1, 1_000.0) is None


def test_a_better_version_waits_to_be_kept_and_is_not_lost(run):
    policies, known = PolicyVersions(run, 0), document()
    best_policy = BestPolicy(known, policies)
    for number, score in enumerate([-60.0, -20.0, -30.0]):
        published(run, policies, number, b"%d" % number)
        known.best = trained_to(best_policy, number + 1, score) or known.best

    assert (known.best.score, policies.read_best()) == (-60.0, b"0")
    known.best = best_policy.keep_waiting()
    assert (known.best.score, known.best.version, policies.read_best()) == (-20.0, 2, b"1")
    assert best_policy.keep_waiting() is None
    assert trained_to(best_policy, 3, -30.0) is None


def test_training_rates_the_version_that_was_kept_for_it_however_old(run):
    policies, known = PolicyVersions(run, 0), document()
    best_policy = BestPolicy(known, policies)
    for number in range(2):
        published(run, policies, number, b"%d" % number)
    best_policy.keep_candidate(2)
    for number in range(2, KEPT + 9):
        published(run, policies, number, b"%d" % number)
    known.best = best_policy.rate_training(2, 7.0)

    assert (known.best.by, known.best.score, known.best.version) == ("training", 7.0, 2)
    assert policies.read_best() == b"1"
    assert policies.read(2) is None


def test_an_evaluation_rates_the_version_that_was_kept_for_it_however_old(run, caplog):
    policies, known = PolicyVersions(run, 0), document()
    best_policy = BestPolicy(known, policies)
    for number in range(KEPT + 9):
        published(run, policies, number, b"%d" % number)
        if number in (1, 2, 3):
            best_policy.keep_evaluated(number + 1)
    known.best = best_policy.rate_evaluation(2, [7.0])
    gone = best_policy.rate_evaluation(2, [8.0])

    assert (known.best.by, known.best.version, known.best.n_opts) == ("evaluation", 2, 1)
    assert policies.read_best() == b"1"
    assert gone is None
    assert "version 2 of run" in caplog.text
    assert "its file is gone" in caplog.text


def test_few_versions_are_kept_for_evaluations_that_never_end(run):
    policies = PolicyVersions(run, 0)
    best_policy = BestPolicy(document(), policies)
    for number in range(KEPT + 9):
        published(run, policies, number)
        best_policy.keep_evaluated(number + 1)

    assert best_policy.rate_evaluation(1, [7.0]) is None
    assert best_policy.rate_evaluation(KEPT + 9, [6.0]).version == KEPT + 9


def test_training_rates_no_other_version_and_none_that_is_gone(run):
    policies = PolicyVersions(run, 0)
    best_policy = BestPolicy(document(), policies)
    for number in range(2):
        published(run, policies, number)
    best_policy.keep_candidate(1)

    assert best_policy.rate_training(2, 5.0) is None
    assert best_policy.rate_training(1, 5.0) is None  # it was for another one
    assert trained_to(best_policy, 9, 5.0) is None
    assert trained_to(best_policy, 2, math.nan) is None


def test_an_evaluation_takes_the_place_of_a_version_that_waits(run):
    policies, known = PolicyVersions(run, 0), document()
    best_policy = BestPolicy(known, policies)
    for number in range(2):
        published(run, policies, number, b"%d" % number)
        known.best = trained_to(best_policy, number + 1, number) or known.best
    known.best = best_policy.rate_evaluation(1, [0.5])

    assert best_policy.keep_waiting() is None
    assert policies.read_best() == b"0"


def test_a_version_that_is_not_there_any_more_is_not_the_best(run):
    policies = PolicyVersions(run, 0)
    best_policy = BestPolicy(document(), policies)
    published(run, policies, 0)

    assert best_policy.rate_evaluation(7, [5.0]) is None
    with pytest.raises(HiveRefused):
        best_policy.rate_evaluation(1, [])


LARGEST = sys.float_info.max


@pytest.mark.parametrize(
    ("values", "expected"),
    [([LARGEST] * 3, LARGEST), ([-LARGEST] * 7, -LARGEST), ([LARGEST, LARGEST, -LARGEST], None),
     ([LARGEST, LARGEST, 0.0], None), ([1.0, 2.0, 4.5], 2.5), ([5e-324] * 3, 5e-324)],
)  # fmt: skip
def test_the_mean_of_finite_values_is_finite_and_among_them(values, expected):
    found = mean(values)

    assert min(values) <= found <= max(values)
    assert expected is None or found == expected
