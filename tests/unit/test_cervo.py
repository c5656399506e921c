from pathlib import Path

import pytest

from arkml.errors import ModelRejected
from arkml.policies.cervo import AssetKind, is_cervo, pack_onnx, unpack

FIXTURES = Path(__file__).parents[2] / "fixtures" / "policies" / "cervo"


@pytest.mark.parametrize("name", ["plain", "epsilon"])
def test_a_container_of_the_onnx_kind_is_eight_bytes_and_the_model(name):
    model = (FIXTURES / f"{name}.onnx").read_bytes()
    container = (FIXTURES / f"{name}.onnx.crvo").read_bytes()

    assert unpack(container) == (AssetKind.ONNX, model)
    assert pack_onnx(model) == container


@pytest.mark.parametrize("name", ["plain.nnef", "plain.nnef_b4", "epsilon.nnef", "epsilon.nnef_b4"])
def test_a_container_of_the_nnef_kind_holds_a_tar(name):
    kind, payload = unpack((FIXTURES / f"{name}.crvo").read_bytes())

    assert kind == AssetKind.NNEF
    assert payload.startswith(b"graph.nnef\0")


def test_only_the_magic_makes_a_container():
    assert is_cervo(b"CRVO")
    assert not is_cervo((FIXTURES / "plain.onnx").read_bytes())
    assert not is_cervo(b"")


def test_the_three_bytes_before_the_kind_are_ignored_as_cervo_ignores_them():
    assert unpack(b"CRVO\1\2\3\2payload") == (AssetKind.NNEF, b"payload")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "expected 8 but got 0"),
        (b"CRV", "expected 8 but got 3"),
        (b"CRVO\0\0\0", "expected 8 but got 7"),
        (b"CRVX\0\0\0\1abc", "unexpected magic: expected b'CRVO' but found b'CRVX'"),
        (b"CRVO\0\0\0\0abc", "unexpected Cervo asset kind 0: 1 is ONNX, 2 NNEF"),
        (b"CRVO\0\0\0\xffabc", "unexpected Cervo asset kind 255"),
        (b"CRVO\0\0\0\1", "the Cervo container is empty"),
    ],
)
def test_what_is_no_container_is_refused_with_the_reason(data, message):
    with pytest.raises(ModelRejected, match=message):
        unpack(data)
