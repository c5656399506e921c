"""The original `UnityEnvironment` drives players of ours."""

import json
import zipfile
from pathlib import Path

import pytest
from tests.integration.command_line import GUESTS, ROOT
from tests.integration.test_llapi_environment import SOURCE, can_bind, free_port
from tests.programs import write_program

pytestmark = pytest.mark.mlagents
HERE = Path(__file__).parent
GOLDEN = json.loads((ROOT / "tests" / "unit" / "golden_mlagents.json").read_text())
THEIRS, OURS = "mlagents_envs", "arkml.envs.llapi"

PLAYERS = {
    "continuous actions": ("c_pendulum", "--configure-numbers=4,{seed}", 202),
    "discrete and hybrid actions, masks, two behaviors": (
        "c_choosers", "--configure-numbers=2,3", 25,
    ),
    "ends with replacement in the same submit": ("c_walkers", "--configure-numbers=3,1,1,0,0", 14),
    "ends with replacement in the next one": ("c_walkers", "--configure-numbers=3,2,2,0,0", 14),
    "agents that skip": ("c_walkers", "--configure-numbers=2,0,1,6,3", 7),
}  # fmt: skip

MASKS, SWING = "discrete and hybrid actions, masks, two behaviors", "continuous actions"


def driven(runner, package, player, steps):
    """The lines that are seen; what the original logs on stdout is left out."""
    port = free_port()
    text = runner.run("python", HERE / "drive.py", package, player, port, steps)
    assert can_bind(port)
    return [
        line for line in text.splitlines() if line.startswith(("[", "{")) and "[INFO]" not in line
    ]


@pytest.mark.parametrize(("guest", "words", "steps"), PLAYERS.values(), ids=PLAYERS)
def test_the_original_and_ours_see_the_same_of_a_player(
    originals, ours, bundle, guest, words, steps
):
    player = bundle(GUESTS / f"{guest}.wasm", words)
    theirs = driven(originals, THEIRS, player, steps)

    assert len(theirs) >= 2 * steps
    assert theirs == driven(ours, OURS, player, steps)


def test_masks_ends_and_numbers_of_a_guest_reach_the_original(originals, bundle):
    choosing = driven(originals, THEIRS, bundle(GUESTS / "c_choosers.wasm", PLAYERS[MASKS][1]), 25)
    swinging = driven(originals, THEIRS, bundle(GUESTS / "c_pendulum.wasm", PLAYERS[SWING][1]), 202)
    specs = json.loads(choosing[-2])
    said = json.loads(swinging[-1])

    assert specs["driver?team=0"][1:] == [2, [3]]
    assert specs["picker?team=0"][1:] == [0, [3, 2]]
    assert any("[true, false" in line or "false, true" in line for line in choosing)
    assert any("[[], [], [], []]" not in line and '"ended": [[[[' in line for line in swinging)
    assert list(said) == ["angle"]
    assert {method for _, method in said["angle"]} == {"AVERAGE"}
    assert len(said["angle"]) == 16  # four agents of two areas, two episodes


def test_the_original_speaks_with_the_player_that_the_tests_of_ours_have(originals, ours, tmp_path):
    player = write_program(tmp_path / "Fake.x86_64", SOURCE.read_text())
    theirs = driven(originals, THEIRS, player, 6)

    assert len(theirs) > 12
    assert theirs == driven(ours, OURS, player, 6)


def test_the_original_has_the_bytes_and_texts_of_the_golden_file(originals):
    found = json.loads(originals.run("python", HERE / "golden.py").splitlines()[-1])

    assert {**GOLDEN["out"], **found["out"]} == GOLDEN["out"]
    assert found["errs"] == GOLDEN["errs"]
    assert len(found["out"]) == len(GOLDEN["out"]) - 1


def test_a_bundle_is_a_player_of_the_original_registry(originals, bundle, tmp_path):
    player = bundle(GUESTS / "c_pendulum.wasm", "--configure-numbers=4,{seed}")
    archive = tmp_path / "swing.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in player.parent.iterdir():
            file.write(path, f"swing/{path.name}")
    port = free_port()
    program = f"""
from mlagents_envs.registry import UnityEnvRegistry
from mlagents_envs.registry.remote_registry_entry import RemoteRegistryEntry
registry = UnityEnvRegistry()
registry.register(RemoteRegistryEntry(
    "Swing", 0.0, "", {archive.as_uri()!r}, None, None, tmp_dir={str(tmp_path)!r}
))
env = registry["Swing"].make(base_port={port})
env.reset()
print(len(env.get_steps("pendulum?team=0")[0]))
env.close()
"""
    printed = originals.run("python", "-c", program)

    assert printed.splitlines()[-1] == "4"
    assert can_bind(port)


REGISTRY = """
from {package}.registry import UnityEnvRegistry
from {package}.registry.base_registry_entry import BaseRegistryEntry
registry = UnityEnvRegistry()
registry.register_from_yaml({manifest!r})
registry.register(BaseRegistryEntry("Game", 5.0, None))
print(registry["Game"].expected_reward)
registry.register(BaseRegistryEntry("Game", 5.0, None))
print(registry["Game"].expected_reward)
"""


def test_the_original_registry_reads_manifests_over_what_was_registered_before(
    originals, ours, tmp_path
):
    manifest = tmp_path / "manifest.yaml"
    fields = ("description: ''", "linux_url: a", "darwin_url: a", "win_url: a")
    manifest.write_text(
        "environments:\n- Game: {expected_reward: 1.0, " + ", ".join(fields) + "}\n"
    )
    theirs, our = (
        runner.run("python", "-c", REGISTRY.format(package=package, manifest=str(manifest)))
        for runner, package in ((originals, THEIRS), (ours, OURS))
    )

    assert theirs.split() == our.split() == ["1.0", "5.0"]
