"""Policies in JavaScript, which act bit for bit as those of a host with backend="wasm"."""

import base64
from pathlib import Path

import numpy as np
import pytest
from tests.node import run_module
from tests.unit.kernel_runs import WASM
from tests.unit.policy_models import (
    adding,
    batch,
    linear,
    long_short_term,
    node,
    port,
    weighty,
)
from tests.unit.policy_models import model as model_of
from tests.unit.test_kernel_exports import exported

from arkml.abi.codes import SnapshotFormat
from arkml.hive.protocol.parts import Part
from arkml.hive.protocol.settings import Settings
from arkml.learning.ppo import Ppo
from arkml.learning.sac import Sac
from arkml.page_scripts import FOLDER
from arkml.policies.kernel import hosted, render
from arkml.policies.library import PolicyLibrary
from arkml.policies.signature import Wanted

PROGRAM = Path(__file__).with_name("kernel_page.mjs")
SEED, KEY, AGENTS = 1 << 70, (5 << 32) + 3, 4
FRAMES = 10_000
STATES = [0] * 12 + [1, 2, 3, 3]  # running, terminal, interrupted, initial


def learned(algorithm=Ppo, features=9, **options):
    return weighty(exported(algorithm, Settings(features, **options)), 3)


def told_of_its_action():
    """actions = obs + half of the action before"""
    return model_of(
        [node("Mul", "last_action half", "h"), node("Add", "obs h", "actions")],
        [port("obs", "N", 2), port("last_action", "N", 2)], [port("actions", "N", 2)],
        [__import__("onnx").numpy_helper.from_array(np.float32(0.5), "half")],
    )  # fmt: skip


SEEING = (Part("me", (2,)), Part("tiles", (5, 3), "entities"))
LONG = {
    "continuous, with noise": (learned(actions=3), Wanted(num_actions=3)),
    "branches and masks": (
        learned(actions=4, branches=(3, 5)), Wanted(num_actions=4, branches=(3, 5)),
    ),
    "remembering": (
        learned(actions=3, branches=(4,), memory=16), Wanted(num_actions=3, branches=(4,)),
    ),
}  # fmt: skip
SHORT = {
    "SAC": (learned(Sac, actions=2), Wanted(num_actions=2)),
    "seeing": (learned(features=18, actions=1, branches=(6,), parts=SEEING),
               Wanted(num_actions=1, branches=(6,))),
    "scores": (linear(np.random.default_rng(0).standard_normal((5, 6))),
               Wanted(num_actions=2, branches=(4, 2))),
    "scores beside an action": (linear(np.random.default_rng(1).standard_normal((5, 4))),
                                Wanted(num_actions=2, branches=(3,))),
    "choices that may not exist": (linear(4 * np.eye(2)), Wanted(num_actions=2, branches=(5, 3))),
    "a sum of blocks": (linear(np.random.default_rng(2).standard_normal((201, 3))),
                        Wanted(num_actions=3)),
    "LSTM": (long_short_term(4, 8)[0], Wanted(num_actions=8)),
    "states that overflow": (adding(3), Wanted(num_actions=3)),
    "told of its action": (told_of_its_action(), Wanted(num_actions=2)),
}  # fmt: skip
OPTIONS = [{}, {"pink": True}, {"deterministic": True}]


def rows(features, choices, frames, *, scale=1.0):
    """Rows of agents, of which one may have several in a frame."""
    random, count = np.random.default_rng(4), frames * AGENTS
    made = random.standard_normal((count, features)).astype("f4") * np.float32(scale)
    strange = random.random(made.shape) < 0.001
    made[strange] = random.choice(np.float32([np.nan, np.inf, -np.inf, 1e38, -0.0]), strange.sum())
    ids = random.choice(np.array([0, 1, 2**63, 2**64 - 1], np.uint64), count)
    masks = random.random((count, choices)) > 0.4
    return made, ids, random.choice(np.uint8(STATES), count), masks.astype(np.uint8)


def in_host(data, wanted, features, ids, states, masks, *, pink=False, deterministic=False):
    library = PolicyLibrary(WASM, seed=SEED, deterministic=deterministic)
    policy = library.load(
        data, SnapshotFormat.ONNX, features.shape[1], wanted.num_actions,
        branches_of=lambda *_: wanted.branches,
    )  # fmt: skip
    inner = getattr(policy, "policy", policy)
    if pink:
        runner = inner._runner
        runner._fill = type(runner)(
            runner._model, runner._roles, seed=SEED, deterministic=False, pink=True,
            workspace=runner._workspace,
        )._fill  # fmt: skip
    actions, values = [], []
    for start in range(0, len(features), AGENTS):
        part = slice(start, start + AGENTS)
        asked = batch(features[part], wanted.num_actions, ids=ids[part], states=states[part],
                      key=KEY)  # fmt: skip
        if wanted.branches:
            policy.masks.begin(AGENTS)
            policy.masks.rows = masks[part].astype(np.float32)
        policy.act(asked)
        actions.append(asked.actions)
        values.append(asked.values)
    return np.concatenate(actions), np.concatenate(values)


def in_page(data, wanted, features, ids, states, masks, runtime=None, **options):
    def text(array):
        return base64.b64encode(array.tobytes()).decode()

    kernel = render(data, wanted)
    if runtime:
        kernel, model, rows = hosted(data, wanted)
        runtime = {"modules": str(runtime), "model": text(np.frombuffer(model, "u1")), "rows": rows}
    answer = run_module(PROGRAM, {
        "folder": FOLDER.as_uri() + "/", "module": text(np.frombuffer(kernel, "u1")),
        "runtime": runtime,
        "options": {"seed": str(SEED), **options}, "key": str(KEY), "agents": AGENTS,
        "ids": text(ids), "features": text(features), "states": text(states),
        "masks": text(masks) if wanted.branches else None,
    })  # fmt: skip
    shape = -1, wanted.num_actions
    found = [np.frombuffer(base64.b64decode(answer[k]), "f4") for k in ("actions", "values")]
    return found[0].reshape(shape), found[1]


def width_of(data):
    """The number of features that a model takes."""
    first = WASM.onnx(data).layout.inputs[0]
    return {"me": 18}.get(first.name, first.width)


def assert_equal(data, wanted, frames, **options):
    made = rows(width_of(data), sum(wanted.branches), frames)
    ours = in_host(data, wanted, *made, **options)
    theirs = in_page(data, wanted, *made, **options)

    for name, found, expected in zip(("actions", "values"), theirs, ours, strict=True):
        assert np.array_equal(found.view("u4"), expected.view("u4")), name
    assert len(np.unique(ours[0])) > 2


@pytest.mark.parametrize(("data", "wanted"), LONG.values(), ids=LONG)
def test_ten_thousand_frames_are_equal_bit_for_bit(data, wanted):
    assert_equal(data, wanted, FRAMES)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(("data", "wanted"), (LONG | SHORT).values(), ids=LONG | SHORT)
def test_frames_are_equal_bit_for_bit(data, wanted, options):
    assert_equal(data, wanted, 200, **options)


def test_a_choice_of_minus_zero_keeps_its_sign_as_in_a_host():
    negated = model_of(
        [node("Neg", "obs", "actions")], [port("obs", "N", 1)], [port("actions", "N", 1)]
    )
    wanted = Wanted(num_actions=1, branches=(3,))
    numbers = np.float32([[0], [-0.0], [0.3], [-0.3], [-1], [-2.5], [2], [-7]])
    masks = np.ones((8, 3), np.uint8)
    made = numbers, np.arange(8, dtype=np.uint64), np.zeros(8, np.uint8), masks
    ours, _ = in_host(negated, wanted, *made)

    assert np.array_equal(ours.view("u4"), in_page(negated, wanted, *made)[0].view("u4"))
    assert np.signbit(ours[:3, 0]).tolist() == [True, False, False]
