"""TypeScript takes what `arkml trials generate` writes, and finds the mistakes of its users."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.node import NODE

from arkml.trials.generate import generate

pytestmark = pytest.mark.cogment
TESTS = Path(__file__).parents[1]
OPTIONS = {
    "strict": True,
    "noUncheckedIndexedAccess": True,
    "target": "es2022",
    "module": "nodenext",
    "lib": ["es2022", "dom"],
    "types": [],
    "noEmit": True,
}
BARE = """
syntax = "proto3";
enum Side { LEFT = 0; RIGHT = 1; }
message Move { Side side = 1; map<string, Move> next = 2; }
"""


def complaints(programs, folder):
    """What the compiler says of a folder, whose declarations it checks, too."""
    (folder / "package.json").write_text('{"type": "module"}')
    config = {"compilerOptions": OPTIONS, "include": ["**/*.ts"]}
    (folder / "tsconfig.json").write_text(json.dumps(config))
    compiler = programs.parent / "typescript" / "package" / "bin" / "tsc"
    run = subprocess.run(
        [NODE, compiler, "-p", folder], capture_output=True, text=True, check=False
    )
    return run.stdout + run.stderr


def test_a_strict_program_is_sound_and_wrong_where_it_says_so(programs, tmp_path):
    generate(TESTS / "trials_project" / "cogment.yaml", javascript=tmp_path)
    shutil.copy(Path(__file__).parent / "typescript" / "player.ts", tmp_path)

    assert complaints(programs, tmp_path) == ""


def test_a_mistake_is_found(programs, tmp_path):
    generate(TESTS / "trials_project" / "cogment.yaml", javascript=tmp_path)
    (tmp_path / "wrong.ts").write_text(
        'import { grid } from "./grid_pb.js";\ngrid.world.Move.create({ left: 1 });\n'
    )

    assert "'left' does not exist" in complaints(programs, tmp_path)


def test_a_project_without_a_package_has_types(programs, tmp_path):
    (tmp_path / "moves.proto").write_text(BARE)
    (tmp_path / "cogment.yaml").write_text(
        "import: {proto: [moves.proto]}\n"
        "actor_classes: [{name: player, action: {space: Move}, observation: {space: Move}}]\n"
    )
    generate(tmp_path / "cogment.yaml", javascript=tmp_path / "web")
    (tmp_path / "web" / "use.ts").write_text(
        'import { cogSettings } from "./CogSettings.js";\n'
        'import { Move, Side } from "./moves_pb.js";\n'
        "const { actionSpace } = cogSettings.actorClasses.player;\n"
        "const move: Move = actionSpace.create({ side: Side.RIGHT });\n"
        "const next: Move | undefined = move.next.other;\nconsole.log(next);\n"
    )

    assert complaints(programs, tmp_path / "web") == ""
