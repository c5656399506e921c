"""With the compilers at hand, the committed guests are what their sources say."""

import json
import sys

import pytest
import wasmtime
from tests.compilers.building import regenerate

pytestmark = pytest.mark.compilers


def interface(path):
    """Imports and exports of a module, with their types."""
    module = wasmtime.Module(wasmtime.Engine(), path.read_bytes())
    kinds = (wasmtime.FuncType, wasmtime.MemoryType, wasmtime.GlobalType, wasmtime.TableType)

    def described(kind):
        assert isinstance(kind, kinds)
        if isinstance(kind, wasmtime.FuncType):
            return ([str(k) for k in kind.params], [str(k) for k in kind.results])
        return type(kind).__name__

    return (
        {(i.module, i.name): described(i.type) for i in module.imports},
        {e.name: described(e.type) for e in module.exports},
    )


def test_every_guest_of_our_own_is_committed_with_the_compiler_that_made_it():
    committed = {path.name for path in regenerate.GUESTS.glob("*.wasm")} - {"bench_guest.wasm"}

    assert committed == set(regenerate.RECIPES)
    assert set(json.loads(regenerate.RECORD.read_text())) == committed


@pytest.mark.parametrize("name", regenerate.RECIPES)
def test_a_rebuilt_guest_is_the_committed_one(name, compilers, tmp_path):
    committed = regenerate.GUESTS / name
    version = compilers.build(name, tmp_path)
    rebuilt = tmp_path / name

    assert interface(rebuilt) == interface(committed)
    if version == json.loads(regenerate.RECORD.read_text())[name]:
        assert rebuilt.read_bytes() == committed.read_bytes()


def test_the_embedded_policy_is_the_committed_one(tmp_path):
    regenerate.embed_policy(tmp_path)
    written = sorted(path for path in tmp_path.rglob("*") if path.is_file())

    assert len(written) == 4
    for path in written:
        assert path.read_bytes() == (regenerate.GUESTS / path.relative_to(tmp_path)).read_bytes()


def test_a_missing_compiler_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))

    with (
        regenerate.Compilers(print) as compilers,
        pytest.raises(regenerate.CompilerMissing, match="wasm-ld or wasm-ld-14 is not installed"),
    ):
        compilers.build("c_servlet.wasm", tmp_path)


def test_a_registry_that_does_not_answer_is_told_in_a_sentence_and_asked_once(monkeypatch):
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9/")
    said = []
    sentence = "cannot be installed: npm got ECONNREFUSED from its registry http://127.0.0.1:9/"

    with regenerate.Compilers(said.append) as compilers:
        for _ in range(2):
            with pytest.raises(regenerate.CompilerMissing, match=sentence):
                compilers.command("asc")

    assert len(said) == 1


def test_a_command_that_takes_too_long_is_ended_with_its_children():
    nested = "import time; time.sleep(3600)"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {nested!r}])"

    with pytest.raises(regenerate.CommandFailed, match=r"was ended after 1 s"):
        regenerate.run([sys.executable, "-c", child], patience=1.0)
