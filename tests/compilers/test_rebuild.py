"""With the compilers at hand, the committed guests are what their sources say."""

import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
import wasmtime

ROOT = Path(__file__).parents[2]
regenerate = SimpleNamespace(**runpy.run_path(str(ROOT / "fixtures" / "regenerate.py")))

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
def test_a_rebuilt_guest_is_the_committed_one(name, tmp_path):
    committed = regenerate.GUESTS / name
    version = regenerate.build(name, tmp_path)
    rebuilt = tmp_path / name

    assert interface(rebuilt) == interface(committed)
    if version == json.loads(regenerate.RECORD.read_text())[name]:
        assert rebuilt.read_bytes() == committed.read_bytes()


def test_the_embedded_policy_is_the_committed_one(tmp_path):
    regenerate.embed_policy(tmp_path)
    written = sorted(path for path in tmp_path.rglob("*") if path.is_file())

    assert len(written) == 3
    for path in written:
        assert path.read_bytes() == (regenerate.GUESTS / path.relative_to(tmp_path)).read_bytes()


def test_a_missing_compiler_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(regenerate.CompilerMissing, match="wasm-ld or wasm-ld-14 is not installed"):
        regenerate.build("c_servlet.wasm", tmp_path)
