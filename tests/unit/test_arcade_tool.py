"""The tool that fetches, unpacks and builds the arcade, without a network or its archives."""

import hashlib
import io
import os
import tarfile

import pytest
from tests.integration.test_environment import INITIAL, scripted
from tools.arcade import compiler
from tools.arcade.__main__ import main
from tools.arcade.sources import ArcadeError, pinned, sources
from tools.arcade.trial import tried

CONFIGURE = '(func (export "configure") (param i32 i32) (result i32) (i32.const 0))'
METADATA = "Metadata-Version: 2.1\nName: game\nVersion: 1.0\n"


def archive(path, **members):
    """Write the source archive of `game` 1.0, and return its SHA-256."""
    with tarfile.open(path, "w:gz") as tar:
        for name, text in {"game-1.0/PKG-INFO": METADATA, **members}.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def pins(folder, sha256):
    path = folder / "pins.txt"
    path.write_text(f"game==1.0 --hash=sha256:{sha256}\n")
    return path


@pytest.fixture
def index(monkeypatch, tmp_path):
    """A folder in which pip looks for archives, and nowhere else."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_a_game_is_built_again_when_one_that_it_includes_changes(monkeypatch, tmp_path):
    monkeypatch.setattr(compiler, "GAMES", tmp_path)
    game, form = tmp_path / "game.c", tmp_path / "form.c"
    game.write_text("int x;\n")
    form.write_text('#define Y 1\n#include "game.c"\n')
    before = compiler.key(form, "1")
    assert compiler.key(form, "1") == before
    game.write_text("int y;\n")

    assert compiler.key(form, "1") != before


def test_an_archive_is_fetched_and_none_of_its_programs_run(index, tmp_path):
    ran = tmp_path / "ran"
    digest = archive(
        index / "game-1.0.tar.gz",
        **{"game-1.0/setup.py": f"open({str(ran)!r}, 'w')", "game-1.0/game.h": "int x;"},
    )
    unpacked = sources(tmp_path / "build", pins(tmp_path, digest))

    assert (unpacked / "game-1.0" / "game.h").read_text() == "int x;"
    assert not (unpacked / "game-1.0" / "setup.py").exists()
    assert not ran.exists()


@pytest.mark.usefixtures("index")
def test_without_an_index_one_sentence_says_so(tmp_path):
    with pytest.raises(ArcadeError, match=r"^pip cannot fetch the archives of the games: No match"):
        sources(tmp_path / "build", pins(tmp_path, "0" * 64))


def test_an_archive_of_another_hash_is_not_taken_from_the_index(index, tmp_path):
    archive(index / "game-1.0.tar.gz")

    with pytest.raises(ArcadeError, match="the index has other archives than"):
        sources(tmp_path / "build", pins(tmp_path, "0" * 64))


def test_an_archive_of_another_hash_is_not_unpacked(tmp_path):
    archive(tmp_path / "game-1.0.tar.gz")

    with pytest.raises(ArcadeError, match=r"is not the pinned archive: its SHA-256 is .*; remove"):
        sources(tmp_path, pins(tmp_path, "0" * 64))
    assert not (tmp_path / "sources").exists()


@pytest.mark.parametrize("name", ["game-1.0/../../out.h", "../out.h", "game-1.0/../../out.txt"])
def test_an_archive_with_a_member_outside_its_folder_is_not_unpacked(tmp_path, name):
    digest = archive(tmp_path / "game-1.0.tar.gz", **{"game-1.0/game.h": "int x;", name: "int y;"})

    with pytest.raises(ArcadeError, match="cannot be unpacked"):
        sources(tmp_path, pins(tmp_path, digest))
    assert list((tmp_path / "sources").iterdir()) == []
    assert not (tmp_path / "out.h").exists()


def test_each_archive_is_pinned_by_its_hash():
    assert [one.folder for one in pinned()] == [
        "pufferlib-3.0.0",
        "box2d-py-2.3.8",
        "rltools-2.2.1",
    ]


def test_a_missing_clang_is_named_with_its_package(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))

    assert main(["--only", "squared"], tmp_path) == 2
    assert capsys.readouterr().err == "error: clang is missing: apt install clang\n"


@pytest.mark.parametrize(
    ("error", "package"),
    [
        ("program.c:1:10: fatal error: 'stdlib.h' file not found", "wasi-libc"),
        ("wasm-ld: error: cannot open crt1-reactor.o: No such file", "wasi-libc"),
        ("wasm-ld: error: cannot open libclang_rt.builtins-wasm32.a", "libclang-rt-dev-wasm32"),
        ("clang: error: unable to execute command: Executable wasm-ld doesn't exist!", "lld"),
    ],
)
def test_what_clang_misses_is_named_with_its_package(monkeypatch, tmp_path, error, package):
    program = tmp_path / "clang"
    program.write_text(f'#!/bin/sh\necho "{error}" >&2\nexit 1\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    with pytest.raises(ArcadeError, match=f"^clang misses {package}: apt install {package}$"):
        compiler.check()


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize(
    ("name", "status", "output"),
    [("acrobot", 1, "error: it was asked"), ("lunar_lander", 2, "pip cannot fetch the archives")],
)
def test_an_archive_is_fetched_only_for_a_game_that_needs_one(
    monkeypatch, tmp_path, capsys, name, status, output
):
    program = tmp_path / "clang"
    program.write_text(
        "#!/bin/sh\n"
        'case "$*" in *examples/arcade/*.cpp*) echo "error: it was asked" >&2; exit 1;; esac\n'
        "echo clang version 1\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("COLUMNS", "200")  # so that no sentence goes on in the next line

    assert main(["--only", name], tmp_path / "build") == status
    assert output in "".join(capsys.readouterr())


def test_a_game_that_traps_in_its_first_step_is_said_to(tmp_path):
    path = tmp_path / "game.wasm"
    path.write_bytes(scripted([(1, INITIAL, 0)], after="(unreachable)", exports=CONFIGURE))

    assert tried(path).error.startswith("traps in its first step: game.wasm trapped: ")


def test_a_game_that_traps_before_its_first_step_is_said_to(tmp_path):
    path = tmp_path / "game.wasm"
    path.write_bytes(scripted(each="(unreachable)", exports=CONFIGURE))

    assert tried(path).error.startswith("does not start: game.wasm trapped: ")
