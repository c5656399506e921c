"""What a file is, by its first bytes, where another one was asked for."""

import io
import pickle
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest

import arkml
from arkml import Host
from arkml.base.file_kinds import CERVO, MODULE, ONNX, kind_of
from arkml.errors import ModelRejected, ModuleRejected

ROOT = Path(__file__).parents[2]
GUEST = ROOT / "fixtures/guests/c_reach.wasm"
SAFETENSORS = "a file of safetensors, as a learner's checkpoint is"
PICTURE = ROOT / "docs/hive_page.png"


def a_zip():
    held = io.BytesIO()
    np.savez(held, weights=np.zeros(3))
    return held.getvalue()


def an_onnx():
    return onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [])).SerializeToString()


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (GUEST.read_bytes(), MODULE),
        (b"\0asm\1\0\0\0", MODULE),
        (b"\n  (module)", MODULE),
        (b";; a text\n ( module $m)", MODULE),
        (b"<!doctype html><title>404</title>", "a page of HTML"),
        (b'\x60\1\0\0\0\0\0\0{"__metadata__":', SAFETENSORS),
        (b"CRVO\0", CERVO),
        (an_onnx(), ONNX),
        (b"\x08\x08\x12\x03abc", ONNX),
        (b"\x08\x0d\x3a\x00", ONNX),
        (b"\x08", ""),
        (b"\x08\x09", ""),
        (PICTURE.read_bytes(), "a PNG picture"),
        (a_zip(), "a ZIP archive, as torch.save and numpy.savez write"),
        *((pickle.dumps([1], version), "a Python pickle") for version in (2, 4, 5)),
        (b"(nothing)", ""),
        (b"# arkml", ""),
        (b"", ""),
    ],
)
def test_files_are_known_by_their_first_bytes(data, kind):
    assert kind_of(data) == kind


def test_a_zip_of_nothing_is_no_error():
    held = io.BytesIO()
    zipfile.ZipFile(held, "w").close()
    assert kind_of(held.getvalue()) == ""


def test_a_picture_as_a_policy_is_named_as_such(tmp_path):
    empty = tmp_path / "empty.onnx"
    empty.touch()
    for policy, message in (
        (PICTURE, r"hive_page\.png is a PNG picture, not an ONNX or Cervo file"),
        (GUEST, r"c_reach\.wasm is a WebAssembly module, not an ONNX .*`arkml run` runs it"),
        (empty, r"empty\.onnx is empty: an ONNX or Cervo file is expected"),
        (PICTURE.read_bytes(), r"not an ONNX model: it is a PNG picture"),
    ):
        with pytest.raises(ModelRejected, match=message):
            Host(policy=policy)
        with pytest.raises(ModelRejected, match=message), Host() as host:
            host.use(policy).result(60)
        with pytest.raises(ModelRejected, match=message):
            arkml.evaluate(GUEST, policy, episodes=1)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (PICTURE.read_bytes(), "is not WebAssembly: it is a PNG picture"),
        (an_onnx(), "is not WebAssembly: it is an ONNX model"),
        (b"", "is not WebAssembly: it is empty"),
    ],
)
def test_a_picture_as_a_module_is_named_as_such(data, message):
    with Host() as host, pytest.raises(ModuleRejected, match=message):
        host.load(data)
