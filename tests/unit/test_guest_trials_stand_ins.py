"""Policies that stand in for players: files and versions of runs, batched over all trials."""

import logging

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit import policy_models as build
from tests.unit.policy_models import INITIAL, RUNNING
from tests.unit.test_learning_ppo_export import weights

from arkml.envs.core.decisions import Behavior
from arkml.envs.core.specs import Actions, ObservationPart, Spec
from arkml.errors import InvalidArguments, ModelRejected, Unavailable, UsageError
from arkml.guest_trials.class_policies import ClassPolicies, OnceWarned
from arkml.guest_trials.guest_trials_options import StandInRows
from arkml.guest_trials.probe import GuestClass
from arkml.guest_trials.stand_ins import StandInFile, StandIns
from arkml.learning.policy_graph import to_onnx
from arkml.policies.library import PolicyLibrary
from arkml.policies.model_cache import ModelCache

CLASSES = "arkml.guest_trials.class_policies"


def guest_class(name="mover", features=2, continuous=2, branches=(), bound=1.0, slots=4):
    bounds = (-bound,) * continuous, (bound,) * continuous
    actions = Actions(continuous, *bounds, tuple(branches))
    infinite = (-np.inf,) * features, (np.inf,) * features
    spec = Spec((ObservationPart("obs_0", (features,), *infinite),), actions)
    return GuestClass(name, Behavior(name, features, actions.width, spec), slots)


def rows(features, *, name="mover", keys=None, states=RUNNING, allowed=None):
    features = np.asarray(features, np.float32)
    count = len(features)
    return StandInRows(
        name,
        features,
        None if allowed is None else np.asarray(allowed, bool),
        np.asarray(range(count) if keys is None else keys, np.uint64),
        np.zeros(count, np.uint64),
        np.broadcast_to(np.uint32(states), (count,)),
    )


def opened(data, actor_class=None, **options):
    """One worker whose only class acts by a file."""
    stand_ins = StandIns([StandInFile("mover.onnx", data)], **options)
    return stand_ins.open([actor_class or guest_class()])


def acted(worker, *asked):
    """The actions of rows, and their origins if there is one call."""
    return [answer.actions.tolist() for answer in worker.act(asked)]


def test_all_rows_of_a_class_are_answered_with_their_origin():
    worker = opened(build.linear([[0.5, 0.0], [0.0, 0.25]]))
    (answer,) = worker.act([rows([[1, 2], [-1, -4], [9, -9]])])

    assert answer.actions.tolist() == [[0.5, 0.5], [-0.5, -1.0], [1.0, -1.0]]
    assert answer.origins == ["mover.onnx"] * 3


def test_classes_have_their_own_files_and_one_file_may_be_that_of_all_others():
    one, other, third = (guest_class(name) for name in ("one", "other", "third"))
    stand_ins = StandIns(
        [
            StandInFile("all.onnx", build.linear(np.eye(2))),
            StandInFile("other.onnx", build.linear(-np.eye(2)), "other"),
        ]
    )
    worker = stand_ins.open([one, other, third])

    asked = [rows([[0.5, 0.5]], name=name) for name in ("one", "other", "third")]
    assert acted(worker, *asked) == [[[0.5, 0.5]], [[-0.5, -0.5]], [[0.5, 0.5]]]
    assert stand_ins.names == {"one": "all.onnx", "other": "other.onnx", "third": "all.onnx"}


def test_a_class_without_a_policy_has_no_actions():
    stand_ins = StandIns([StandInFile("one.onnx", build.linear(np.eye(2)), "one")])
    worker = stand_ins.open([guest_class("one"), guest_class("other")])

    assert worker.act([rows([[1, 1]], name="other")]) == [None]
    assert "other" not in stand_ins.names


def test_a_recurrent_state_is_kept_for_each_slot_until_its_episode_ends():
    worker = opened(build.adding(2), guest_class(bound=100))
    first = acted(worker, rows([[1, 1], [2, 2]], keys=[5, 6], states=INITIAL))
    turned = acted(worker, rows([[2, 2], [1, 1]], keys=[6, 5]))
    begun = acted(worker, rows([[3, 3], [3, 3]], keys=[5, 6], states=[INITIAL, RUNNING]))

    assert first == [[[1, 1], [2, 2]]]
    assert turned == [[[4, 4], [2, 2]]]
    assert begun == [[[3, 3], [7, 7]]]


def test_a_recurrent_state_is_forgotten_with_its_trial():
    worker = opened(build.adding(2), guest_class(bound=100))
    acted(worker, rows([[1, 1], [2, 2]], keys=[5, 6], states=INITIAL))
    worker.forget([5])

    assert acted(worker, rows([[1, 1], [1, 1]], keys=[5, 6])) == [[[1, 1], [3, 3]]]


def test_noise_is_that_of_the_slot_and_the_step_and_not_of_the_batch():
    wide = guest_class(bound=100)
    together, apart = (opened(build.noisy(2), wide, seed=3) for _ in range(2))
    zeros = np.zeros((2, 2))
    ticks = [acted(together, rows(zeros, keys=[5, 6]))[0] for _ in range(3)]
    first = [acted(apart, rows(zeros[:1], keys=[5]))[0][0] for _ in range(3)]
    second = [acted(apart, rows(zeros[:1], keys=[6]))[0][0] for _ in range(3)]

    assert ticks == [[a, b] for a, b in zip(first, second, strict=True)]
    assert len({tuple(row) for tick in ticks for row in tick}) == 6


def test_there_is_no_noise_where_none_is_asked_for():
    worker = opened(build.noisy(2), deterministic=True)

    assert acted(worker, rows([[0.5, -0.5]])) == [[[0.5, -0.5]]]


def test_rows_whose_actions_are_not_finite_get_the_default_action_and_one_warning(caplog):
    worker = opened(build.linear(np.eye(2)))
    asked = rows([[np.nan, 0.5], [0.5, 0.5], [0.5, np.inf]])
    answers = [worker.act([asked])[0] for _ in range(3)]

    assert [answer.actions.tolist() for answer in answers] == [[[0, 0], [0.5, 0.5], [0, 0]]] * 3
    assert answers[0].origins == ["", "mover.onnx", ""]
    assert [record.message for record in caplog.records] == [
        "mover.onnx: the policy gave actions that are not finite; the default action takes its"
        " place in such ticks"
    ]


class Failing:
    """A policy whose run fails now and then."""

    num_features, num_actions = 2, 2

    def __init__(self, *, fails=True):
        self.fails = fails
        self.batches = []

    def act(self, batch):
        self.batches.append(batch.keys.tolist())
        if self.fails:
            raise Unavailable("the model failed: out of memory")
        batch.actions[...] = 0.5

    def forget(self, key):
        del key


def test_all_agents_of_a_version_are_one_batch():
    library = PolicyLibrary(ModelCache())
    acting = ClassPolicies(guest_class(), library, OnceWarned(), seed=0, deterministic=False)
    one, other = Failing(fails=False), Failing(fails=False)
    acting.offer(one, "reach@1")
    acting.act(rows(np.ones((4, 2)), states=INITIAL))
    acting.offer(other, "reach@2")
    acting.act(rows(np.ones((5, 2)), states=[RUNNING, INITIAL, RUNNING, INITIAL, RUNNING]))

    assert one.batches == [[0, 1, 2, 3], [0, 2]]
    assert other.batches == [[1, 3, 4]]


def test_a_policy_that_fails_is_replaced_in_that_tick_with_one_warning(caplog):
    library = PolicyLibrary(ModelCache())
    acting = ClassPolicies(guest_class(), library, OnceWarned(), seed=0, deterministic=False)
    failing = Failing()
    acting.offer(failing, "reach@1")
    answers = [acting.act(rows([[1, 1]])) for _ in range(2)]
    failing.fails = False

    assert [(one.actions.tolist(), one.origins) for one in answers] == [([[0, 0]], [""])] * 2
    assert acting.act(rows([[1, 1]])).actions.tolist() == [[0.5, 0.5]]
    assert [record.message for record in caplog.records] == [
        "reach@1: the policy failed: the model failed: out of memory; the default action takes its"
        " place in such ticks"
    ]


@st.composite
def masked_rows(draw):
    """Branches, numbers that a policy gives for them, and masks that may leave a branch nothing."""
    branches = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    count = draw(st.integers(1, 4))
    numbers = st.floats(-3, 7, width=32) | st.integers(-2, 6).map(float) | st.just(1e30)
    floats = [[draw(numbers) for _ in branches] for _ in range(count)]
    masks = [[draw(st.booleans()) for _ in range(sum(branches))] for _ in range(count)]
    return branches, np.array(floats, np.float32), np.array(masks, bool)


def taken_masked(chosen, branches, masks):
    """Choices that are masked, or do not exist, where the branch has another."""
    wrong = []
    for choices, mask in zip(chosen, masks, strict=True):
        start = 0
        for size, choice in zip(branches, choices, strict=True):
            part = mask[start : start + size]
            start += size
            if choice not in range(size) or (part.any() and not part[int(choice)]):
                wrong.append((choice, part.tolist()))
    return wrong


@settings(deadline=None, max_examples=60)
@given(masked_rows())
def test_a_policy_without_masks_never_takes_a_masked_choice(asked):
    branches, floats, masks = asked
    width = len(branches)
    actor_class = guest_class(features=width, continuous=0, branches=branches)
    worker = opened(build.linear(np.eye(width)), actor_class)
    (chosen,) = acted(worker, rows(floats, allowed=masks))

    assert taken_masked(chosen, branches, masks) == []


@settings(deadline=None, max_examples=30)
@given(masked_rows(), st.booleans())
def test_a_policy_of_ppo_never_takes_a_masked_choice(asked, deterministic):
    branches, _, masks = asked
    actor_class = guest_class(features=3, continuous=0, branches=branches)
    data = to_onnx(weights(branches, scale=3.0))
    worker = opened(data, actor_class, deterministic=deterministic)
    features = np.random.default_rng(0).normal(size=(len(masks), 3))
    (chosen,) = acted(worker, rows(features, allowed=masks))

    assert taken_masked(chosen, branches, masks) == []


@pytest.mark.parametrize(
    ("number", "allowed", "choice"),
    [
        (2.0, [1, 1, 1, 1], 2),
        (1.6, [1, 1, 1, 1], 2),
        (1.5, [1, 1, 1, 1], 2),
        (0.5, [1, 1, 1, 1], 0),
        (-0.4, [1, 1, 1, 1], 0),
        (4.0, [1, 1, 1, 1], 0),
        (2.0, [0, 1, 0, 1], 1),
        (7.0, [0, 0, 0, 1], 3),
        (2.0, [0, 0, 0, 0], 2),
    ],
)
def test_a_number_becomes_the_nearest_choice_or_the_lowest_allowed_one(number, allowed, choice):
    worker = opened(build.linear([[1]]), guest_class(features=1, continuous=0, branches=[4]))

    assert acted(worker, rows([[number]], allowed=[allowed])) == [[[choice]]]


def test_a_policy_of_ppo_sees_the_masks_and_takes_the_likeliest_allowed_choice():
    made = weights((3,), scale=3.0)
    actor_class = guest_class(features=3, continuous=0, branches=[3])
    worker = opened(to_onnx(made), actor_class, deterministic=True)
    features = np.zeros((1, 3))
    (((free,),),) = acted(worker, rows(features))
    without = [choice != free for choice in range(3)]
    (((masked,),),) = acted(worker, rows(features, allowed=[without]))
    last = [choice == 3 - free - masked for choice in range(3)]

    assert masked != free
    assert acted(worker, rows(features, allowed=[last])) == [[[3 - free - masked]]]
    assert acted(worker, rows(features)) == [[[free]]]


def following():
    """Stand-ins of a class that follows a run, and one worker."""
    stand_ins = StandIns(run_classes=["mover"])
    return stand_ins, stand_ins.open([guest_class(bound=5)])


def times(factor):
    return build.linear(factor * np.eye(2))


def test_a_class_that_follows_a_run_has_no_policy_before_its_first_version():
    stand_ins, worker = following()
    before = worker.act([rows([[1, 1]])]), dict(stand_ins.names)
    stand_ins.offer("mover", 1, times(0.5), "reach@1")

    assert before == ([None], {"mover": ""})
    assert acted(worker, rows([[1, 1]])) == [[[0.5, 0.5]]]
    assert stand_ins.names == {"mover": "reach@1"}


def test_an_agent_keeps_the_version_of_the_start_of_its_episode():
    stand_ins, worker = following()
    stand_ins.offer("mover", 1, times(0.25), "reach@1")
    worker.act([rows(np.ones((3, 2)), states=INITIAL)])
    stand_ins.offer("mover", 2, times(0.5), "reach@2")
    (answer,) = worker.act([rows(np.ones((3, 2)), states=[RUNNING, INITIAL, RUNNING])])
    (later,) = worker.act([rows(np.ones((4, 2)))])

    assert answer.actions[:, 0].tolist() == [0.25, 0.5, 0.25]
    assert answer.origins == ["reach@1", "reach@2", "reach@1"]
    assert later.origins == ["reach@1", "reach@2", "reach@1", "reach@2"]


def test_a_slot_of_a_trial_that_is_over_follows_the_newest_version():
    stand_ins, worker = following()
    stand_ins.offer("mover", 1, times(0.25), "reach@1")
    worker.act([rows(np.ones((2, 2)), states=INITIAL)])
    stand_ins.offer("mover", 2, times(0.5), "reach@2")
    worker.forget([1])

    assert worker.act([rows(np.ones((2, 2)))])[0].origins == ["reach@1", "reach@2"]


def test_actions_of_a_run_are_clipped_as_the_agents_of_the_run_get_them():
    stand_ins, worker = following()
    stand_ins.offer("mover", 1, times(3.0), "reach@1")

    assert acted(worker, rows([[1, -1]])) == [[[1, -1]]]


def test_a_worker_that_opens_later_has_the_newest_version():
    stand_ins, _ = following()
    stand_ins.offer("mover", 1, times(0.25), "reach@1")
    stand_ins.offer("mover", 2, times(0.5), "reach@2")
    worker = stand_ins.open([guest_class(bound=5)])

    assert worker.act([rows([[1, 1]])])[0].origins == ["reach@2"]


def test_a_version_that_does_not_fit_is_refused_and_the_one_before_acts_on():
    stand_ins, worker = following()
    stand_ins.offer("mover", 1, times(0.25), "reach@1")

    with pytest.raises(InvalidArguments, match="the model takes 3 features"):
        stand_ins.offer("mover", 2, build.linear(np.eye(3)), "reach@2")
    with pytest.raises(UsageError, match="class 'other' follows no run: version 1 is refused"):
        stand_ins.offer("other", 1, times(1), "reach@1")
    assert worker.act([rows([[1, 1]])])[0].origins == ["reach@1"]


def test_a_worker_that_is_closed_is_offered_no_version():
    stand_ins, worker = following()
    worker.close()
    worker.close()
    stand_ins.offer("mover", 1, times(0.25), "reach@1")

    assert worker.act([rows([[1, 1]])]) == [None]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (build.linear(np.eye(3)), "the model takes 3 features (obs: 3), 2 are given"),
        (build.linear(np.ones((2, 3))), "the model has no output of 2 actions, only actions: 3"),
    ],
)
def test_a_file_that_does_not_fit_is_named_with_its_class(data, reason):
    with pytest.raises(ModelRejected) as caught:
        opened(data)

    assert str(caught.value).startswith(f"mover.onnx cannot act for class 'mover': {reason}")


def test_a_file_that_is_no_model_is_refused_when_it_is_given():
    with pytest.raises(ModelRejected, match=r"mover\.onnx: not an ONNX model"):
        StandIns([StandInFile("mover.onnx", b"not a model")])


def two_outputs():
    nodes = [build.node("Identity", "obs", "a"), build.node("Neg", "obs", "b")]
    ports = [build.port(name, "N", 2) for name in ("a", "b")]
    return build.model(nodes, [build.port("obs", "N", 2)], ports)


def test_the_output_of_a_file_that_is_named_acts():
    for name, expected in (("a", [[0.5, -0.25]]), ("b", [[-0.5, 0.25]])):
        stand_ins = StandIns([StandInFile("two.onnx", two_outputs(), outputs=(name,))])
        worker = stand_ins.open([guest_class()])

        assert acted(worker, rows([[0.5, -0.25]])) == [expected]


def test_a_file_of_which_two_outputs_could_act_is_refused_with_the_way_out():
    stand_ins = StandIns([StandInFile("two.onnx", two_outputs())])

    with pytest.raises(ModelRejected, match=r"\(a: 2, b: 2\), .* --policy-output NAME"):
        stand_ins.open([guest_class()])


def test_a_file_for_a_class_that_the_guest_does_not_have_is_refused():
    stand_ins = StandIns([StandInFile("a.onnx", times(1), "walker")])

    with pytest.raises(UsageError, match="there is a policy for class 'walker', and the guest"):
        stand_ins.open([guest_class()])


@pytest.mark.parametrize(
    ("classes", "runs", "sentence"),
    [
        (["mover", "mover"], [], "b.onnx is a second policy for class 'mover'"),
        ([None, None], [], "b.onnx is a second policy for all classes"),
        ([None, "mover"], ["mover"], "b.onnx is a policy for class 'mover', which follows a run"),
    ],
)
def test_a_class_has_one_policy(classes, runs, sentence):
    files = [
        StandInFile(f"{name}.onnx", times(1), one) for name, one in zip("ab", classes, strict=True)
    ]

    with pytest.raises(UsageError, match=sentence):
        StandIns(files, run_classes=runs)


def test_a_warning_is_logged_once_by_all_workers(caplog):
    stand_ins = StandIns([StandInFile("mover.onnx", build.linear(np.eye(2)))])
    workers = [stand_ins.open([guest_class()]) for _ in range(2)]
    for worker in workers:
        worker.act([rows([[np.nan, 0]])])

    assert caplog.record_tuples[0][:2] == (CLASSES, logging.WARNING)
    assert len(caplog.records) == 1


def test_warnings_about_versions_of_a_run_are_remembered_within_a_bound(caplog):
    warned = OnceWarned()
    for version in range(1_000):
        warned.warn(f"walk@{version}", "it failed")
        warned.warn(f"walk@{version}", "it failed")

    assert len(caplog.records) == 1_000
    assert len(warned._origins) <= 256
