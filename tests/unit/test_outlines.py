"""Outlines of modules on disk: as they were read, and read again where in doubt."""

import hashlib
import pickle

import pytest
from wasmtime import wat2wasm

from arkml.errors import LinkError, MemoryLimitExceeded
from arkml.host import Host
from arkml.limits import Limits
from arkml.runtime import compiled_module
from arkml.runtime.compilation import artifacts, outlines
from arkml.runtime.compilation.outlines import load_outline, outlined, save_outline
from arkml.runtime.module.normalize import normalize

WASM = bytes(
    wat2wasm("""
(module (import "ark-core-v3" "core__log" (func (param i32 i32 i32) (result i32)))
  (memory (export "memory") 2 9) (table 3 funcref) (func $s) (start $s)
  (func (export "ark_applet_update")) (func (export "f") (param i32 f64) (result i64) unreachable))
""")
)
DIGEST = hashlib.sha256(WASM).hexdigest()


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    monkeypatch.setenv("ARKML_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "cache"


@pytest.fixture
def outline():
    made = outlined(normalize(WASM, Limits()))
    save_outline(DIGEST, made)
    return made


def test_an_outline_is_loaded_as_it_was_saved(outline):
    assert load_outline(DIGEST) == outline
    assert outline.code == hashlib.sha256(normalize(WASM, Limits()).wasm).hexdigest()
    assert outline.info.startup.functions == ("arkml:start",)
    assert [export.name for export in outline.info.exports] == ["memory", "ark_applet_update", "f"]


def test_an_outline_holds_no_code(outline):
    assert outline.binary.data == b""
    assert len(pickle.dumps(outline)) < 3_000


@pytest.mark.usefixtures("outline")
def test_another_reader_reads_a_module_again(monkeypatch):
    assert load_outline(hashlib.sha256(b"another module").hexdigest()) is None
    monkeypatch.setattr(outlines, "_reader", lambda: "another version")

    assert load_outline(DIGEST) is None


@pytest.mark.parametrize("content", [b"", b"\x80", pickle.dumps("text"), b"cnothing\nhere\n."])
@pytest.mark.usefixtures("outline")
def test_what_is_not_an_outline_is_not_there(content):
    artifacts.save(outlines._entry_name(DIGEST), content)

    assert load_outline(DIGEST) is None


@pytest.mark.usefixtures("outline")
def test_an_outline_that_another_wrote_is_not_even_unpickled(places, monkeypatch):
    (entry,) = places.iterdir()
    entry.write_bytes(bytes(32) + pickle.dumps("text"))
    monkeypatch.setattr(pickle, "loads", lambda _: pytest.fail("unpickled"))

    assert load_outline(DIGEST) is None


def test_a_large_outline_is_not_kept(places, outline, monkeypatch):
    monkeypatch.setattr(outlines, "_MOST_BYTES", len(pickle.dumps(outline)) - 1)
    save_outline(hashlib.sha256(b"another module").hexdigest(), outline)

    assert len(list(places.iterdir())) == 1


def test_a_kept_module_is_not_read_again(monkeypatch):
    with Host() as host:
        first = host.compile(WASM.replace(b"\x01f", b"\x01g"))  # no other test compiles it
    monkeypatch.setattr(compiled_module, "normalize", lambda *_: pytest.fail("read again"))
    with Host(limits=Limits(table_elements=17)) as host:  # the process has it for other limits
        again = host.compile(first.binary)

    assert again.info == first.info
    assert again.functions == first.functions
    assert (again.memory, again.linkage) == (first.memory, first.linkage)
    assert again.table_share == 17


def test_limits_and_imports_of_a_kept_module_are_checked():
    with Host() as host:
        host.compile(WASM)
    with Host(limits=Limits(memory_bytes=1 << 16)) as host, pytest.raises(MemoryLimitExceeded):
        host.compile(WASM)
    wrong = WASM.replace(b"core__log", b"core__lag")
    save_outline(hashlib.sha256(wrong).hexdigest(), outlined(normalize(wrong, Limits())))
    with Host() as host, pytest.raises(LinkError, match="core__lag"):
        host.compile(wrong)
