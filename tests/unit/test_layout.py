"""Layout: slots, offsets and the bytes of structs."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkml.abi.catalog import APIS
from arkml.abi.codes import ExperimentStatus
from arkml.abi.core import CORE_V0
from arkml.abi.layout import (
    cut,
    dtype,
    pack,
    placed,
    results,
    slots,
    struct_align,
    struct_size,
    unpack,
)
from arkml.abi.ml_inference_v0 import SHAPE
from arkml.abi.ml_v1 import EXPERIMENT_INFO, METRIC_V1, POLL_SIMPLE, POLL_VEC
from arkml.abi.ml_v3 import METRIC_V3
from arkml.abi.schema import (
    BOOL,
    F32,
    U8,
    U32,
    U64,
    Bytes,
    Field,
    Function,
    Handle,
    Out,
    Outcome,
    Pad,
    Param,
    Slice,
    Str,
    Struct,
)
from arkml.errors import InvalidArguments

STRUCTS = [struct for api in APIS for struct in api.structs]
INFO = {
    "name": "walk",
    "id": "0001",
    "started_at": -1,
    "ended_at": 0,
    "max_duration": 1 << 63,
    "experiment_status": ExperimentStatus.RUNNING,
    "worker_count": 3,
}


def test_text_and_slices_become_a_pointer_and_a_length():
    row = Function("f", "", (Param("a", Str()), Param("b", Slice(F32)), Param("c", U64)))

    assert [slot.name for slot in slots(row)] == ["a_ptr", "a_len", "b_ptr", "b_len", "c"]
    assert [slot.wasm for slot in slots(row)] == ["i32", "i32", "i32", "i32", "i64"]


def test_a_result_leaves_through_a_last_pointer():
    row = Function("f", "", (Param("a", Handle("H", "", U32)), Param("b", Out(BOOL))), returns=F32)

    assert [*slots(row)][-1] == ("__ark_ffi_output", "i32")
    assert [slot.wasm for slot in slots(row)] == ["i32", "i32", "i32"]
    assert results(row) == ["i32"]


def test_a_vector_result_announces_its_size_through_a_last_pointer():
    assert [*slots(Function("f", "", returns=Bytes()))] == [("__ark_byte_size", "i32")]


@pytest.mark.parametrize(
    ("outcome", "names", "wasm"),
    [
        (Outcome.CODE, ["__ark_ffi_output"], ["i32"]),
        (Outcome.VALUE, [], ["i32"]),
        (Outcome.NONE, ["__ark_ffi_output"], []),
        (Outcome.NEVER, ["__ark_ffi_output"], []),
    ],
)
def test_the_outcome_decides_where_a_result_goes(outcome, names, wasm):
    row = Function("f", "", returns=U32, outcome=outcome)

    assert [slot.name for slot in slots(row)] == names
    assert results(row) == wasm


def test_a_raw_block_is_one_pointer_beside_its_size():
    return_slice = CORE_V0.functions[0]

    assert [slot.name for slot in slots(return_slice)] == ["ptr", "len", "size"]


def test_padding_must_be_written_out():
    gap = Struct("Gap", "", (Field("a", U8), Field("b", U32)))
    open_end = Struct("OpenEnd", "", (Field("a", U32), Field("b", U8)))
    closed = replace(open_end, fields=(*open_end.fields, Field("_pad", Pad(3))))

    with pytest.raises(ValueError, match=r"Gap\.b at 1"):
        list(placed(gap))
    with pytest.raises(ValueError, match="OpenEnd ends at 5"):
        list(placed(open_end))
    assert struct_size(closed) == 8


def test_a_nested_struct_keeps_its_alignment():
    outer = Struct("Outer", "", (Field("a", POLL_VEC), Field("b", U64), Field("c", POLL_SIMPLE)))
    closed = replace(outer, fields=(*outer.fields, Field("_pad", Pad(7))))

    assert [field.offset for field in placed(closed)] == [0, 8, 16, 17]
    assert (struct_size(closed), struct_align(closed)) == (24, 8)
    assert unpack(closed, bytes(24))["a"] == {"ready": False, "len": 0}


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.name)
def test_numpy_sees_the_same_offsets(struct):
    kind = dtype(struct)

    assert kind.itemsize == struct_size(struct)
    assert {name: kind.fields[name][1] for name in kind.names} == {
        field.name: field.offset for field in placed(struct)
    }


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.name)
def test_zeros_unpack_and_pack_to_zeros(struct):
    zeros = bytes(struct_size(struct))

    assert pack(struct, unpack(struct, zeros)) == zeros


def test_packed_bytes_are_what_numpy_reads():
    (row,) = np.frombuffer(pack(EXPERIMENT_INFO, INFO), dtype(EXPERIMENT_INFO))

    assert row["name"]["length"] == 4
    assert bytes(row["name"]["bytes"][:5]) == b"walk\0"
    assert (row["started_at"], row["max_duration"]) == (-1, 1 << 63)
    assert (row["experiment_status"], row["worker_count"]) == (2, 3)


def test_what_was_packed_is_unpacked():
    assert unpack(EXPERIMENT_INFO, pack(EXPERIMENT_INFO, INFO)) == INFO
    assert unpack(SHAPE, pack(SHAPE, {"ndim": 2, "dims": [3, 4]})) == {
        "ndim": 2,
        "dims": [3, 4, 0, 0, 0, 0, 0, 0],
    }


def test_padding_is_written_as_zero_and_ignored_when_read():
    assert pack(POLL_VEC, {"ready": True, "len": 5}) == b"\1\0\0\0\5\0\0\0"
    assert unpack(POLL_VEC, b"\1???\5\0\0\0") == {"ready": True, "len": 5}


@given(st.text(max_size=100), st.integers(0, 70))
def test_text_is_cut_between_characters(text, capacity):
    kept = cut(text, capacity)

    assert len(kept) <= capacity
    assert text.startswith(kept.decode())
    assert kept == text.encode() or len(text[: len(kept.decode()) + 1].encode()) > capacity


def test_a_name_that_is_too_long_is_cut_to_its_field():
    long = pack(METRIC_V3, {"name": "é" * 40, "value": 1.0})
    short = pack(METRIC_V1, {"name": "é" * 14 + "x", "value": 1.0})

    assert unpack(METRIC_V3, long) == {"name": "é" * 32, "value": 1.0}
    assert unpack(METRIC_V1, short) == {"name": ("é" * 14).encode(), "value": 1.0}


def test_a_guests_string_that_lies_about_its_length_or_encoding_is_still_read():
    data = (0xFFFF_FFFF).to_bytes(4, "little") + b"\xff" * 64 + bytes(4)

    assert unpack(METRIC_V3, data) == {"name": "\N{REPLACEMENT CHARACTER}" * 64, "value": 0.0}


def test_an_unknown_enum_number_is_refused():
    data = bytearray(pack(EXPERIMENT_INFO, INFO))
    data[224] = 200

    with pytest.raises(InvalidArguments, match="200 is not a number of ExperimentStatus"):
        unpack(EXPERIMENT_INFO, bytes(data))


def test_a_struct_takes_exactly_its_fields_and_its_size():
    with pytest.raises(ValueError, match="MetricV3 has the fields"):
        pack(METRIC_V3, {"name": "a"})
    with pytest.raises(ValueError, match="MetricV3 has 72 bytes, not 3"):
        unpack(METRIC_V3, b"abc")
