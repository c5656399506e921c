"""The tables say what the published crates say, row by row and byte by byte."""

import json
from enum import IntEnum
from pathlib import Path

import pytest

from arkml.abi import codes
from arkml.abi.catalog import APIS, FOREIGN, find
from arkml.abi.codes import ErrorCode
from arkml.abi.layout import align_of, lower, placed, results, size_of, slots, struct_align
from arkml.abi.layout import struct_size as size_of_struct
from arkml.abi.schema import (
    Api,
    Block,
    Bytes,
    FixedStr,
    Function,
    Handle,
    Lane,
    Out,
    OutBlock,
    Outcome,
    OutSlice,
    Param,
    Ref,
    Scalar,
    Slice,
    Str,
    Struct,
    Text,
)

FIXTURES = Path(__file__).parents[2] / "fixtures" / "abi"
SIGNATURES = json.loads((FIXTURES / "abi_signatures.json").read_text())
LAYOUTS = json.loads((FIXTURES / "abi_layouts.json").read_text())
ROWS = [(api, function) for api in APIS for function in api.functions]
IDS = [f"{api.module}.{api.symbol(function)}" for api, function in ROWS]
STRUCTS = {struct.name: (api, struct) for api in APIS for struct in api.structs}

# The crates write these as plain numbers; the tables name the enum, or the other way round.
RETYPED = {
    ("ark-ml-v3", "episode_state"): "u32",
    ("ark-ml-v5", "snapshot_format"): "u32",
    ("ark-ml-inference-v0", "format"): "u32",
    ("ark-core-v3", "level"): "LogLevel",
}
ALIASES = {"AgentId": "u64"}
# Core is plain C: its parameters are written as they are lowered.
PLAIN_C = [row for row in ROWS if row[0].prefix == "core"]


def crate_name(name: str) -> str:
    """MetricV1 and MetricV3 are both called Metric in their crate's modules."""
    return "Metric" if name.startswith("Metric") else name


def rust_type(api: Api, param: Param) -> str:
    if (api.module, param.name) in RETYPED:
        return RETYPED[api.module, param.name]
    match param.type:
        case Str():
            return "&str"
        case Slice(item=item):
            return f"&[{crate_name(item.name)}]"
        case OutSlice(item=item):
            return f"&mut [{crate_name(item.name)}]"
        case Ref(struct=struct):
            return f"&{struct.name}"
        case Out(type=kind):
            return f"&mut {kind.name}"
        case Scalar(name=name) | Handle(name=name):
            return name
        case type() as enum:
            return enum.__name__
        case Block() | OutBlock():
            raise AssertionError(f"{param.name}: only core functions take raw blocks")


def rust_result(function: Function) -> str:
    match function.returns:
        case None:
            name = "()"
        case Bytes():
            name = "Vec<u8>"
        case Text():
            name = "String"
        case kind:
            name = kind.name
    return f"FFIResult<{name}>" if function.outcome is Outcome.CODE else name


def camel(member: IntEnum) -> str:
    return member.name.replace("_", "").lower()


def test_the_tables_hold_the_functions_of_the_crates_and_no_others():
    crates = {(module, symbol) for module, functions in SIGNATURES.items() for symbol in functions}

    assert len(ROWS) == len(crates) == 85
    assert {(api.module, api.symbol(function)) for api, function in ROWS} == crates


@pytest.mark.parametrize(("api", "function"), ROWS, ids=IDS)
def test_a_function_has_the_wasm_type_of_the_crates(api, function):
    crate = SIGNATURES[api.module][api.symbol(function)]

    assert [slot.wasm for slot in slots(function)] == crate["params"]
    assert results(function) == crate["results"]


@pytest.mark.parametrize(("api", "function"), [row for row in ROWS if row not in PLAIN_C])
def test_a_function_has_the_parameters_and_result_of_the_crates(api, function):
    crate = SIGNATURES[api.module][api.symbol(function)]["rust"]
    ours = [[param.name, rust_type(api, param)] for param in function.params]

    assert ours == [[name, ALIASES.get(kind, kind)] for name, kind in crate["params"]]
    assert rust_result(function) == crate["returns"]


@pytest.mark.parametrize(("api", "function"), PLAIN_C)
def test_a_core_function_lowers_to_the_plain_c_parameters_of_the_crates(api, function):
    crate = SIGNATURES[api.module][api.symbol(function)]["rust"]
    names = [slot.name for param in function.params for slot in lower(param)]
    result = {
        Outcome.CODE: "ErrorCode",
        Outcome.VALUE: "u32",
        Outcome.NONE: None,
    }[function.outcome]

    assert names == [name for name, _ in crate["params"]]
    assert result == (crate["returns"] and crate["returns"].removeprefix("crate::"))


def test_the_struct_lists_agree():
    crates = {name.rpartition("::")[2] for name in LAYOUTS["structs"] if "<" not in name}

    assert {crate_name(name) for name in STRUCTS} == crates
    assert len(STRUCTS) == len([name for name in LAYOUTS["structs"] if "<" not in name])


@pytest.mark.parametrize("name", [name for name in LAYOUTS["structs"] if "<" not in name])
def test_a_struct_has_the_layout_of_the_crates(name):
    module, _, bare = name.rpartition("::")
    version = module.rpartition("_")[2].upper()
    api, struct = STRUCTS.get(bare) or STRUCTS[bare + version]
    crate = LAYOUTS["structs"][name]

    assert size_of_struct(struct) == crate["size"]
    assert struct_align(struct) == crate["align"]
    assert {field.name: field.offset for field in placed(struct)} == crate["fields"]
    if module.startswith("ml"):
        assert api.module == "ark-" + module.replace("_", "-")


@pytest.mark.parametrize("capacity", [64, 128])
def test_a_fixed_string_has_the_layout_of_the_crates(capacity):
    crate = LAYOUTS["structs"][f"FixedBufferString<{capacity}>"]
    kind = FixedStr(capacity)

    assert (size_of(kind), align_of(kind)) == (crate["size"], crate["align"])
    assert crate["fields"] == {"length": 0, "bytes": 4}


@pytest.mark.parametrize("name", [name for name in LAYOUTS["enums"] if "::" not in name])
def test_an_enum_has_the_numbers_of_the_crates(name):
    enum = getattr(codes, name)

    assert {camel(member): member.value for member in enum} == {
        key.lower(): number for key, number in LAYOUTS["enums"][name].items()
    }


def test_the_snapshot_formats_of_ml_inference_are_those_still_supported():
    theirs = LAYOUTS["enums"]["ml_inference_v0::SnapshotFormat"]
    supported = set(codes.SnapshotFormat) - {codes.SnapshotFormat.TENSORFLOW}

    assert {camel(member): member.value for member in supported} == {
        key.lower(): number for key, number in theirs.items()
    }


def test_every_enum_is_declared_by_exactly_one_api():
    declared = [enum for api in APIS for enum in api.enums]
    ours = {kind for kind in vars(codes).values() if isinstance(kind, type)} - {IntEnum}

    assert len(declared) == len(set(declared))
    assert set(declared) == ours


def test_the_api_ids_are_those_of_the_crates():
    ours = {api.module.removeprefix("ark-"): f"{api.id:#018x}" for api in APIS}

    assert ours == LAYOUTS["api_ids"]


def test_only_pushes_and_submits_have_lanes_of_their_own():
    lanes = {
        lane: {f"{api.module}.{function.name}" for api, function in ROWS if function.lane is lane}
        for lane in Lane
    }

    assert lanes[Lane.PUSH] == {
        "ark-ml-v1.push_training_observation",
        "ark-ml-v1.push_training_observation_with_metadata",
        "ark-ml-v1.push_inference_observation",
        "ark-ml-v1.push_inference_observation_with_metadata",
        "ark-ml-v3.push_training_observation",
        "ark-ml-v3.push_inference_observation",
    }
    assert lanes[Lane.SUBMIT] == {
        "ark-ml-v1.submit_training_observations",
        "ark-ml-v1.submit_inference_observations",
    }
    assert lanes[Lane.ANSWER] == {
        "ark-ml-v5.submit_training_observations",
        "ark-ml-v5.submit_inference_observations",
    }


@pytest.mark.parametrize("function", [function for _, function in ROWS], ids=IDS)
def test_a_row_is_documented_and_names_the_errors_its_arguments_can_cause(function):
    kinds = [param.type for param in function.params]
    # `log` is answered with Success whatever it is given: a guest asserts it.
    can_fail = function.outcome is Outcome.CODE and function.name != "log"
    borrows = any(isinstance(kind, (Str, Slice, OutSlice, Ref, Out, type)) for kind in kinds)

    assert function.doc.endswith(".")
    assert ErrorCode.SUCCESS not in function.errors
    if can_fail and borrows:
        assert ErrorCode.INVALID_ARGUMENTS in function.errors
    if can_fail and any(isinstance(kind, Handle) for kind in kinds):
        assert ErrorCode.NOT_FOUND in function.errors
    if function.outcome is Outcome.NONE or function.name == "log":
        assert not function.errors


def test_every_type_a_row_uses_is_declared_by_an_api():
    def types(row: Function):
        for kind in [*(param.type for param in row.params), row.returns]:
            match kind:
                case Slice(item=item) | OutSlice(item=item):
                    yield item
                case Ref(struct=struct):
                    yield struct
                case Out(type=inner):
                    yield inner
                case _:
                    yield kind

    used = {kind for _, row in ROWS for kind in types(row) if isinstance(kind, (Struct, Handle))}
    declared = {kind for api in APIS for kind in (*api.structs, *api.handles)}

    assert used <= declared
    assert all(kind.doc for kind in declared)


@pytest.mark.parametrize(("api", "function"), ROWS, ids=IDS)
def test_a_row_is_found_by_the_names_a_guest_imports(api, function):
    assert find(api.module, api.symbol(function)) == (api, function)


def test_an_import_that_nobody_declares_is_not_found():
    env = next(api for api in FOREIGN if api.module == "env")

    assert find("env", "abort") == (env, env.functions[0])
    assert find("ark-ml-v1", "abort") is None
    assert find("ark-ml-v9", "ml__start_inference") is None
