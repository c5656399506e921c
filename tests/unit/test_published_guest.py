"""Guests in node, by the modules of the published page, do what they do in wasmtime."""

import hashlib
import logging
import random
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tests.node import run_module
from wasmtime import wat2wasm

from arkml import Host, WasiGrant, page_scripts
from arkml.abi.catalog import APIS
from arkml.abi.env_imports import ENV
from arkml.abi.layout import results, slots
from arkml.abi.ml_inference_v0 import ML_INFERENCE_V0
from arkml.envs.core.world import Pace, SeededWorld
from arkml.errors import EntryPointMissing, GuestError, InvalidArguments, LinkError
from arkml.guests.guest import SEED_EXPORT, Guest, seeded_initializers
from arkml.host import loader_of
from arkml.policies.choice_masks import ChoiceMasks, MaskedPolicy
from arkml.policies.training import masks_of
from arkml.publishing.guest_plan import plan_of
from arkml.runs.evaluation_guests import PolicyEvaluation
from arkml.sessions.declarations import behaviors_in

ROOT = Path(__file__).parents[2]
GUESTS = ROOT / "fixtures/guests"
PROGRAM = Path(__file__).parent / "published_guest.mjs"
SEED = 7
LEVELS = {logging.ERROR: "error", logging.WARNING: "warning", logging.INFO: "info",
          logging.DEBUG: "debug", 5: "trace"}  # fmt: skip
EACH = 2_000_000  # bytes of a memory that is compared in each frame


def hashed(*parts):
    made = hashlib.md5(usedforsecurity=False)
    for part in parts:
        made.update(part)
    return made.hexdigest()


class Halves:
    """Each action is a feature of its row, halved: the same in any arithmetic."""

    def __init__(self, heard, num_features, num_actions, masks=None):
        self.num_features, self.num_actions = num_features, num_actions
        self.heard, self.masks = heard, masks

    def act(self, batch):
        columns = np.arange(self.num_actions) % self.num_features
        batch.actions[:] = np.float32(0.5) * batch.features[:, columns]
        batch.values[:] = batch.features[:, 0]
        masks = None if self.masks is None else self.masks.rows
        self.heard.append(
            hashed(
                np.ascontiguousarray(batch.rows["id"]),
                np.ascontiguousarray(batch.rows["state"]),
                np.ascontiguousarray(batch.rows["reward"]),
                batch.features.copy(),
                b"" if masks is None else masks.astype(np.uint8),
            )
        )

    def forget(self, key):
        pass


class Anything:
    """A policy for sessions of any shape, or of `widths`, in the place of that of a library."""

    def __init__(self, library, heard, widths):
        self._library, self._heard, self._widths = library, heard, widths

    def install(self, monkeypatch):
        def given_policy(_given, features, actions, branches):
            masks = ChoiceMasks(branches, self._library.workspace) if branches else None
            policy = Halves(self._heard, features, actions, masks)
            return policy if masks is None else MaskedPolicy(policy, masks)

        monkeypatch.setattr(self._library, "_given_policy", given_policy)

        def override(policy):
            shape = policy.num_features, policy.num_actions
            if self._widths not in (None, shape):
                raise InvalidArguments(f"widths {shape}")
            return Halves(self._heard, *shape, masks_of(policy))

        monkeypatch.setattr(self._library, "load_override", override)


def played_in_wasmtime(path, plan, frames, every, calls, widths, monkeypatch):
    """What the guest does in a host, as `published_guest.mjs` tells it."""
    heard, told, lines, answers = [], [], [], []
    failure = ""
    output = partial(printed, lines)
    grant = WasiGrant(stdout=partial(output, "output"), stderr=partial(output, "warning"))
    policy = (lambda features: features) if widths is None else Halves(heard, *widths)
    with Host(policy=policy, wasi=grant) as host:
        module = host.compile(path)
        library = loader_of(host).library()
        Anything(library, heard, widths).install(monkeypatch)
        gateway = PolicyEvaluation(library, spec=module.info.spec) if plan.trains else None
        world = SeededWorld(SEED, Pace())
        shared = loader_of(host).shared(gateway=gateway, library=library, world=world)
        guest = Guest(loader_of(host).load(module, path.stem, shared))
        log = guest._instance.services.log
        log.on_line = lambda level, text: lines.append([LEVELS[level], text])
        guest._instance.hear_all()
        try:
            for name in seeded_initializers(module, "ark_applet_update"):
                world.tick()
                guest.call(name, *((SEED,) if name == SEED_EXPORT else ()))
            for name, *numbers in calls:
                world.tick()
                kinds = {"i32": int, "i64": int, "f32": float, "f64": float}
                answer = guest.call(name, *(kinds[kind](text) for kind, text in numbers))
                with guest.memory() as memory:
                    answers.append([shown(answer), hashed(memory)])
            for frame in range(frames):
                world.tick()
                guest.call("ark_applet_update")
                is_hashed = frame % every == 0 or frame == frames - 1
                with guest.memory() as memory:
                    told.append([hashed(*(one.encode() for one in heard)),
                                 hashed(memory) if is_hashed else ""])  # fmt: skip
                heard.clear()
        except GuestError as error:
            failure = str(error)
    return {"frames": told, "results": answers, "lines": lines, "failure": failure}


def shown(answer):
    """A result as JavaScript writes it."""
    if isinstance(answer, float) and answer.is_integer():
        return str(int(answer))
    return "null" if answer is None else str(answer)


def printed(lines, level, data):
    lines.append([level, data.decode().removesuffix("\n")])


def said_by_guest(played):
    """The lines of a log without those of hosts on refused calls, whose reasons are in words."""
    about = " answered ", "a snapshot was", "cannot join", "of a run", "widths ", "it takes a whole"
    return [line for line in played["lines"] if not any(text in line[1] for text in about)]


def compared(path, frames, monkeypatch, folder, calls=(), widths=None):
    """Play a guest in both, compare all of it, and return what it did."""
    with Host(wasi=WasiGrant(), policy=lambda features: features) as host:
        module = host.compile(path)
        plan = plan_of(module, 60)
    published = folder / path.name
    published.write_bytes(plan.wasm)
    branches = {}
    for one in behaviors_in(module.info.spec).values():
        actions = (one.actions.continuous or 0) + len(one.actions.discrete)
        branches[f"{one.num_features or '*'},{actions}"] = list(one.actions.discrete)
    every = 1 if path.stat().st_size < EACH and frames <= 200 else 50
    played = run_module(
        PROGRAM,
        {
            "folder": f"{page_scripts.FOLDER.as_uri()}/", "wasm": str(published),
            "plan": dict(plan.document), "seed": str(SEED), "frames": frames, "every": every,
            "calls": calls, "branches": branches, "widths": widths,
        },
    )  # fmt: skip
    wanted = played_in_wasmtime(path, plan, frames, every, calls, widths, monkeypatch)
    for call, one, other in zip(calls, wanted["results"], played["results"], strict=False):
        assert one == other, f"{call} answers {other[0]}, in wasmtime {one[0]}"
    for frame, (one, other) in enumerate(zip(wanted["frames"], played["frames"], strict=False)):
        assert one == other, f"frame {frame} differs"
    assert len(played["frames"]) == len(wanted["frames"]), (played["failure"], wanted["failure"])
    assert said_by_guest(played) == said_by_guest(wanted)
    return played


PLAYED = [
    "as_applet",  # AssemblyScript, which acts with a model of its own
    "as_language",  # its random numbers, clock and console
    "c_choosers",  # trains only, with masks
    "c_drift",  # the random numbers and the clock of WASI
    "c_echo",  # pushes with metadata
    "c_gallery",  # images
    "c_maze",
    "c_pendulum_nan_features",
    "c_walkers_seeded",
    "cpp_command",  # constructors that a host runs once
]


@pytest.mark.parametrize("name", PLAYED)
def test_a_guest_in_node_does_what_it_does_in_wasmtime(name, monkeypatch, tmp_path):
    played = compared(GUESTS / f"{name}.wasm", 60, monkeypatch, tmp_path)

    assert len(played["frames"]) == 60


@pytest.mark.sweeps
@pytest.mark.parametrize("path", sorted(GUESTS.glob("*.wasm")), ids=lambda path: path.stem)
def test_every_guest_with_frames_plays_on_in_node_as_in_wasmtime(path, monkeypatch, tmp_path):
    try:
        played = compared(path, 1_000, monkeypatch, tmp_path)
    except (EntryPointMissing, LinkError):
        return  # it has no frame, or asks for a game
    assert played["frames"] or played["failure"]


def test_a_place_without_a_name_is_told_by_its_number(monkeypatch, tmp_path):
    path = tmp_path / "bare.wasm"
    bare = '(module (memory (export "memory") 1) (func (export "ark_applet_update") unreachable))'
    path.write_bytes(wat2wasm(bare))
    played = compared(path, 5, monkeypatch, tmp_path)

    assert played["places"][0].startswith("function 0 at 0x")


def test_a_failure_is_told_with_its_place(monkeypatch, tmp_path):
    played = compared(GUESTS / "as_abort.wasm", 5, monkeypatch, tmp_path)

    assert len(played["frames"]) == 2
    assert played["failure"].startswith("frame 3 is too much: åäö ✓")
    assert any("at 0x" in place for place in played["places"])


def test_a_model_is_packed_as_in_a_host(monkeypatch, tmp_path):
    model = (GUESTS / "policies/idle.onnx").read_bytes()
    text = "".join(f"\\{byte:02x}" for byte in model)
    path = tmp_path / "packer.wasm"
    packer = f"""(module
      (import "ark-ml-inference-v0" "ml_inference__onnx_to_cervo"
        (func $brains (param i32 i32 i32) (result i32)))
      (import "ark-ml-v1" "ml__onnx_to_cervo" (func $pack (param i32 i32 i32) (result i32)))
      (import "ark-core-v4" "core__take_host_return_vec" (func $take (param i32 i32) (result i32)))
      (memory (export "memory") 1) (data (i32.const 64) "{text}")
      (func $take_to (param i32) (result i32)
        (call $take (local.get 0) (i32.load (i32.const 8))))
      (func (export "ark_applet_update")
        (i32.store (i32.const 0) (call $pack (i32.const 64) (i32.const {len(model)}) (i32.const 8)))
        (i32.store (i32.const 4) (call $take_to (i32.const 8192)))
        (drop (call $brains (i32.const 64) (i32.const {len(model)}) (i32.const 8)))
        (i32.store (i32.const 12) (call $take_to (i32.const 16384)))))"""
    path.write_bytes(wat2wasm(packer))

    played = compared(path, 1, monkeypatch, tmp_path, widths=(2, 1))
    assert played["failure"] == ""
    assert said_by_guest(played) == []


UNLIKE = {"abort", "process_exit", "onnx_to_cervo", "create_runtime"}
"""Functions that end the guest, one that a page does without, and one that refuses in hosts."""

NUMBERS = {
    "i32": (0, 1, 2, 3, 4, 8, 64, 65_530, 131_064, 131_072, 0x7FFF_FFFF, -1, -64),
    "i64": (0, 1, 2, 3, 1 << 32 | 1, 1 << 32 | 2, -1, 1 << 62),
    "f32": (0.0, -1.5),
    "f64": (0.0, -1.5),
}
SHORT = (0, 1, 2, 3, 4, 8)


def caller(functions):
    """A guest with an export for each function that calls it, and a memory of two pages."""
    lines = ["(module"]
    for number, (api, function) in enumerate(functions):
        types = " ".join(slot.wasm for slot in slots(function))
        result = "".join(f"(result {one})" for one in results(function))
        params = f"(param {types})" if types else ""
        name = f'"{api.module}" "{api.symbol(function)}"'
        lines.append(f"(import {name} (func $f{number} {params} {result}))")
    lines.append('(memory (export "memory") 2) (func (export "ark_applet_update"))')
    lines.append('(data (i32.const 0) "{}") (data (i32.const 64) "{}\\00\\00\\00mask/0/1")')
    for number, (_, function) in enumerate(functions):
        types = [slot.wasm for slot in slots(function)]
        params = f"(param {' '.join(types)})" if types else ""
        result = "".join(f"(result {one})" for one in results(function))
        given = " ".join(f"(local.get {place})" for place in range(len(types)))
        lines.append(f'(func (export "f{number}") {params} {result} (call $f{number} {given}))')
    return "\n".join([*lines, ")"])


def drawn_calls(functions, count, seed):
    """Calls with numbers of which many are hostile; sessions are opened often enough."""
    chosen = random.Random(seed)
    opening = [
        n for n, (_, one) in enumerate(functions) if one.name.startswith(("start_", "take_"))
    ]
    for _ in range(count):
        number = chosen.choice(opening if chosen.random() < 0.2 else range(len(functions)))
        is_tame = chosen.random() < 0.7
        yield (
            f"f{number}",
            *(
                (kind, str(chosen.choice(SHORT if is_tame and kind[0] == "i" else NUMBERS[kind])))
                for kind in (slot.wasm for slot in slots(functions[number][1]))
            ),
        )


@pytest.mark.parametrize("opens", [True, False], ids=["inference", "training"])
def test_every_import_answers_hostile_numbers_as_in_wasmtime(opens, monkeypatch, tmp_path):
    functions = [
        (api, function)
        for api in (*APIS, ENV)
        if api is not ML_INFERENCE_V0
        for function in api.functions
        if function.handler not in UNLIKE and (opens or function.name != "start_inference")
    ]
    path = tmp_path / "caller.wasm"
    path.write_bytes(wat2wasm(caller(functions)))

    compared(path, 1, monkeypatch, tmp_path, list(drawn_calls(functions, 3_000, seed=1)), (2, 1))
