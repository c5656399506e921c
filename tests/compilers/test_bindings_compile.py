"""With the compilers at hand, the files of `guest_abi` compile, for wasm and for this machine."""

import shutil
import subprocess

import pytest
from tests.compilers.building import ROOT, regenerate

GUEST_ABI = ROOT / "guest_abi"
HEADERS = sorted(path.name for path in (GUEST_ABI / "c").glob("*.h"))

pytestmark = pytest.mark.compilers


def compiles(arguments, cwd):
    ran = subprocess.run(
        arguments, cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    )
    return ran.returncode == 0, ran.stderr


@pytest.fixture
def unit(tmp_path):
    includes = "".join(f'#include "{name}"\n' for name in HEADERS)
    (tmp_path / "unit.c").write_text(f"#define DECLARATIONS\n{includes}")
    return tmp_path


@pytest.mark.parametrize(
    "compiler",
    [
        ["gcc", "-std=c11", "-pedantic"],
        ["g++", "-std=c++17", "-x", "c++"],
        ["clang", "-std=c11", "--target=wasm32", "-ffreestanding"],
    ],
    ids=["gcc", "g++", "clang-wasm32"],
)
def test_the_c_headers_compile_together_and_their_layouts_hold(compiler, unit):
    flags = ["-Wall", "-Wextra", "-Werror", "-I", str(GUEST_ABI / "c"), "-c", "unit.c"]
    is_good, errors = compiles([*compiler, *flags, "-o", "unit.o"], unit)

    assert is_good, errors


def test_the_layout_asserts_of_the_c_headers_can_fail(unit):
    types = unit / "ark_types.h"
    text = (GUEST_ABI / "c" / "ark_types.h").read_text()
    types.write_text(
        text.replace("offsetof(ArkPollVec, len) == 4", "offsetof(ArkPollVec, len) == 5")
    )
    is_good, errors = compiles(["gcc", "-std=c11", "-c", "ark_types.h", "-o", "unit.o"], unit)

    assert not is_good
    assert "ArkPollVec.len" in errors


OPTIONS = ("WITH_PROTOCOL", "DEMONSTRATIONS=2", "REMOTE_WORKERS=1", "WITHOUT_SEED", "WITHOUT_GAME")


@pytest.mark.parametrize("option", OPTIONS)
def test_the_helper_of_c_compiles_with_each_of_its_options(option, unit):
    (unit / "unit.c").write_text(
        '#include "arkml_guest.h"\n#ifndef WITHOUT_GAME\nstatic const Game GAME = {0};\n#endif\n'
    )
    flags = ["-std=c11", "--target=wasm32", "-ffreestanding", "-Wall", "-Wextra", "-Werror"]
    paths = ["-I", str(GUEST_ABI / "c"), "-c", "unit.c", "-o", "unit.o"]
    is_good, errors = compiles(["clang", *flags, f"-D{option}", *paths], unit)

    assert is_good, errors


def test_the_helper_of_rust_compiles_without_warnings(tmp_path):
    kind = ["--edition", "2021", "--crate-type", "rlib", "-D", "warnings", "--out-dir", "."]
    source = str(GUEST_ABI / "rust" / "arkml_guest.rs")
    target = ["--target", "wasm32-unknown-unknown"]
    is_good, errors = compiles([regenerate.rust_compiler(), *kind, *target, source], tmp_path)

    assert is_good, errors


@pytest.mark.parametrize("target", ["wasm32-unknown-unknown", None])
def test_the_rust_module_compiles_without_std_or_warnings(target, tmp_path):
    shutil.copy(GUEST_ABI / "rust" / "ark_abi.rs", tmp_path)
    (tmp_path / "lib.rs").write_text("#![no_std]\npub mod ark_abi;\n")
    kind = ["--edition", "2021", "--crate-type", "rlib", "-D", "warnings"]
    where = ["--target", target] if target else []
    is_good, errors = compiles([regenerate.rust_compiler(), *kind, *where, "lib.rs"], tmp_path)

    assert is_good, errors


def test_the_assemblyscript_files_compile(compilers, tmp_path):
    shutil.copytree(GUEST_ABI / "assemblyscript", tmp_path / "abi")
    names = sorted(path.name for path in (tmp_path / "abi").glob("*.ts"))
    sources = [f"abi/{name}" for name in names]
    asc = compilers.command("asc")
    is_good, errors = compiles([*asc, *sources, "--outFile", "all.wasm"], tmp_path)

    assert is_good, errors
