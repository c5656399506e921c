"""What the documents tell guest authors to write and to run builds guests that act."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from tests.compilers.building import ROOT, regenerate
from tools.houses import PYTHONPATH

from arkml import Host, evaluate
from arkml.guests.guest import INITIALIZERS
from arkml.runtime.module import description

FIRST_PAGE = (ROOT / "README.md").read_text()
GUIDE = (ROOT / "docs" / "guests.md").read_text()
README = (ROOT / "guest_abi/README.md").read_text()
SOURCES = {"c": "npc.c", "rust": "npc.rs", "ts": "npc.ts"}
HEADINGS = {"c": "C and C++", "rust": "Rust", "ts": "AssemblyScript"}
COPY = 'cp -r "$(arkml sdk --path)" .\n'
INSTALLATION = f"npm install assemblyscript@{regenerate.ASSEMBLYSCRIPT}\n"


def blocks(text, language):
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def build_lines(language):
    """The shell lines of a language's section in the README of `guest_abi`."""
    section = README.partition(f"\n## {HEADINGS[language]}\n")[2].partition("\n## ")[0]
    (lines,) = blocks(section, "sh")
    return lines


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """A folder of programs under the names that the documents call them by."""
    folder = tmp_path_factory.mktemp("bin")
    paths = {"rustc": regenerate.rust_compiler()}
    for name in ("clang", "clang++"):
        paths[name] = shutil.which(name) or shutil.which(f"{name}-14")
    for name, path in paths.items():
        (folder / name).symlink_to(path)
    arkml = folder / "arkml"
    arkml.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m arkml "$@"\n')
    arkml.chmod(0o755)
    return folder


@pytest.fixture
def shell(programs, tmp_path):
    """Runs shell lines in a folder that holds the fixtures, as the guide says."""
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    host = [PYTHONPATH, os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(filter(None, host)),
    }

    def run(lines):
        ran = subprocess.run(
            ["sh", "-ec", lines], cwd=tmp_path, env=environment, capture_output=True,
            text=True, timeout=120, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    return run


def without_installation(lines, compilers, folder):
    """The lines after the installation, which is the one that the session has made already."""
    assert lines.startswith(INSTALLATION)
    (folder / "node_modules").symlink_to(compilers.node_modules)
    return lines.removeprefix(INSTALLATION)


@pytest.mark.compilers
@pytest.mark.parametrize("language", SOURCES)
def test_a_guest_of_the_guide_is_built_by_the_readme_and_acts(language, compilers, shell, tmp_path):
    policy, trial, *_ = blocks(GUIDE, "sh")
    (source,) = (
        block for block in blocks(GUIDE, language) if SOURCES[language] in block.partition("\n")[0]
    )
    lines = build_lines(language)
    assert lines in GUIDE
    (tmp_path / SOURCES[language]).write_text(source)
    if language == "ts":
        lines = without_installation(lines, compilers, tmp_path)
    assert policy.startswith(COPY)
    shell(policy)
    shell(lines)
    tried = shell(trial)

    assert "1 of 1 guests passed" in tried
    assert "rows" in tried
    with Host() as host:
        guest = host.load(tmp_path / "npc.wasm")
        before = guest.call("position")
        for _ in range(120):
            guest.update()

        assert [api.module for api in guest.info.required] == ["ark-ml-v1"]
        assert before == 1.0
        assert abs(guest.call("position")) < 1e-3
        assert guest.statistics.rows == 120
        assert guest.statistics.errors == {}


@pytest.mark.compilers
def test_the_guest_of_the_first_page_is_built_by_its_line_and_trains(shell, tmp_path):
    (source,), (line,) = blocks(FIRST_PAGE, "c"), blocks(FIRST_PAGE, "sh")
    (tmp_path / "ball.c").write_text(source)
    shell(line)

    idle = evaluate(tmp_path / "ball.wasm", lambda rows: 0 * rows[:, :1], episodes=2)
    steered = evaluate(tmp_path / "ball.wasm", lambda rows: -rows @ [[2.0], [3.0]], episodes=2)

    assert list(idle.returns) == [-50.0, -50.0]
    assert list(idle.lengths) == [50, 50]
    assert steered.mean_return > -10.0


@pytest.mark.compilers
def test_the_options_of_the_c_line_are_needed(shell, tmp_path):
    source = """
#include "ark_ml.h"
__attribute__((used, visibility("default"))) const uint64_t ARK_API_ML = ARK_ML_V1_ID;
static float rows[4096], copies[4096];
ARK_EXPORT("copy") float *copy(uint32_t n) { __builtin_memcpy(copies, rows, n); return copies; }
"""
    (tmp_path / "npc.c").write_text(source)
    shell(COPY + build_lines("c"))
    with Host() as host:
        required = host.compile(tmp_path / "npc.wasm").info.required
        shell(build_lines("c").replace("-Wl,--export=ARK_API_ML ", ""))
        unexported = host.compile(tmp_path / "npc.wasm").info.required

    assert [api.name for api in required] == ["ARK_API_ML"]
    assert unexported == ()
    with pytest.raises(AssertionError, match=r"undefined symbol: mem(cpy|set)"):
        shell(build_lines("c").replace("-mbulk-memory ", ""))


DESTROYED = """
#include "ark_ml.h"
extern "C" const uint64_t ARK_API_ML = ARK_ML_V1_ID;
struct Body { virtual ~Body() { at = -1; } virtual float place() = 0; float at = 3; };
struct Ball : Body { Ball(float x) { at = x; } float place() override { return at; } };
struct World { float x; World() : x(2) {} ~World() { x = -1; } };
static World world;
static Body &ball() { static Ball made(world.x); return made; }
ARK_EXPORT("ark_applet_update") void frame(void) { world.x += 1; ball().at += 1; }
ARK_EXPORT("position") float position(void) { return world.x + ball().place(); }
"""
"""Objects with destructors, static and in a function, of a class that is abstract."""


@pytest.mark.compilers
def test_a_guest_in_cpp_whose_objects_have_destructors_is_built_by_the_guide(shell, tmp_path):
    (flags,) = re.findall(r"^\| C\+\+ \|.*`clang\+\+ (.*?)`", GUIDE, re.MULTILINE)
    (stubs,) = blocks(GUIDE, "cpp")
    lines = build_lines("c").replace("clang ", f"clang++ {flags} ").replace("npc.c", "npc.cpp")
    (tmp_path / "npc.cpp").write_text(DESTROYED + stubs)
    shell(COPY + lines)
    with Host() as host:
        guest = host.load(tmp_path / "npc.wasm")
        guest.update()
        guest.update()

        assert guest.call("position") == 4 + 5

    for flag, symbol in (
        ("-fno-c++-static-destructors ", "__cxa_atexit"),
        ("-fno-rtti ", "vtable"),
    ):
        with pytest.raises(AssertionError, match=f"undefined symbol: {symbol}"):
            shell(lines.replace(flag, ""))


def test_the_guide_names_what_the_host_calls_with_its_type():
    rows = re.findall(r"^\| `(\w+)`.*? \| `(.*?)` \|", GUIDE, re.MULTILINE)
    told = dict(rows)
    fixed = {name: str(kind) for name, (_, kind) in description._FIXED.items()}

    assert {name: told[name] for name in fixed} == fixed
    assert {told[name] for name in INITIALIZERS} == {"() -> ()"}
