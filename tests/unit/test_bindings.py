"""The part of wasmtime-py that the runtime relies on beyond its classes, name by name."""

import contextlib
import ctypes
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import wasmtime
import wasmtime._func
from tools.houses import PYTHONPATH
from wasmtime import _bindings as raw
from wasmtime import _ffi as ffi

from arkml.errors import UsageError
from arkml.runtime import bindings, epochs, native, suspension
from arkml.runtime.shim import control_block as at

ROOT = Path(__file__).parents[2]
RUNTIME = ROOT / "host" / "arkml" / "arkml" / "runtime"
SOURCES = {
    path.name: path.read_text()
    for folder in (RUNTIME, RUNTIME / "compilation")
    for path in folder.glob("*.py")
}
ADVICE = (
    "the runtime relies on wasmtime 50 here: read the new version's bindings, run"
    " tests/integration/test_fibers.py, and only then change bindings.py and this test"
)

FUNCTIONS = {
    "wasmtime_call_future_delete": (None, "LP_wasmtime_call_future"),
    "wasmtime_call_future_poll": ("c_bool", "LP_wasmtime_call_future"),
    "wasmtime_config_async_stack_size_set": (None, "LP_wasm_config_t c_ulong"),
    "wasmtime_context_set_wasi": ("LP_wasmtime_error", "LP_wasmtime_context LP_wasi_config_t"),
    "wasmtime_context_set_epoch_deadline": (None, "LP_wasmtime_context c_ulong"),
    "wasmtime_error_delete": (None, "LP_wasmtime_error"),
    "wasmtime_error_new": ("LP_wasmtime_error", "LP_c_char"),
    "wasmtime_error_wasm_trace": (None, "LP_wasmtime_error LP_wasm_frame_vec_t"),
    "wasmtime_func_call_async": (
        "LP_wasmtime_call_future",
        "LP_wasmtime_context LP_wasmtime_func LP_wasmtime_val c_ulong LP_wasmtime_val c_ulong"
        " LP_LP_wasm_trap_t LP_LP_wasmtime_error",
    ),
    "wasmtime_func_call_unchecked": (
        "LP_wasmtime_error",
        "LP_wasmtime_context LP_wasmtime_func LP_wasmtime_val_raw c_ulong LP_LP_wasm_trap_t",
    ),
    "wasmtime_global_get": (None, "LP_wasmtime_context LP_wasmtime_global LP_wasmtime_val"),
    "wasmtime_global_set": (
        "LP_wasmtime_error",
        "LP_wasmtime_context LP_wasmtime_global LP_wasmtime_val",
    ),
    "wasmtime_instance_export_get": (
        "c_bool",
        "LP_wasmtime_context LP_wasmtime_instance LP_c_char c_ulong LP_wasmtime_extern",
    ),
    "wasmtime_instance_pre_instantiate_async": (
        "LP_wasmtime_call_future",
        "LP_wasmtime_instance_pre LP_wasmtime_context LP_wasmtime_instance LP_LP_wasm_trap_t"
        " LP_LP_wasmtime_error",
    ),
    "wasmtime_linker_define": (
        "LP_wasmtime_error",
        "LP_wasmtime_linker LP_wasmtime_context LP_c_char c_ulong LP_c_char c_ulong"
        " LP_wasmtime_extern",
    ),
    "wasmtime_linker_define_async_func": (
        "LP_wasmtime_error",
        "LP_wasmtime_linker LP_c_char c_ulong LP_c_char c_ulong LP_wasm_functype_t"
        " CFunctionType c_void_p CFunctionType",
    ),
    "wasmtime_linker_get": (
        "c_bool",
        "LP_wasmtime_linker LP_wasmtime_context LP_c_char c_ulong LP_c_char c_ulong"
        " LP_wasmtime_extern",
    ),
    "wasmtime_linker_instantiate_async": (
        "LP_wasmtime_call_future",
        "LP_wasmtime_linker LP_wasmtime_context LP_wasmtime_module LP_wasmtime_instance"
        " LP_LP_wasm_trap_t LP_LP_wasmtime_error",
    ),
    "wasmtime_module_deserialize": (
        "LP_wasmtime_error",
        "LP_wasm_engine_t LP_c_ubyte c_ulong LP_LP_wasmtime_module",
    ),
    "wasmtime_linker_instantiate_pre": (
        "LP_wasmtime_error",
        "LP_wasmtime_linker LP_wasmtime_module LP_LP_wasmtime_instance_pre",
    ),
    "wasmtime_memory_data": ("LP_c_ubyte", "LP_wasmtime_context LP_wasmtime_memory"),
    "wasmtime_memory_grow": (
        "LP_wasmtime_error",
        "LP_wasmtime_context LP_wasmtime_memory c_ulong LP_c_ulong",
    ),
    "wasmtime_memory_size": ("c_ulong", "LP_wasmtime_context LP_wasmtime_memory"),
    "wasmtime_store_context": ("LP_wasmtime_context", "LP_wasmtime_store"),
    "wasmtime_store_delete": (None, "LP_wasmtime_store"),
    "wasmtime_store_epoch_deadline_callback": (
        None,
        "LP_wasmtime_store CFunctionType c_void_p CFunctionType",
    ),
    "wasmtime_store_limiter": (None, "LP_wasmtime_store c_long c_long c_long c_long c_long"),
    "wasmtime_store_new": ("LP_wasmtime_store", "LP_wasm_engine_t c_void_p CFunctionType"),
    "wasmtime_table_get": (
        "c_bool",
        "LP_wasmtime_context LP_wasmtime_table c_ulong LP_wasmtime_val",
    ),
    "wasmtime_table_grow": (
        "LP_wasmtime_error",
        "LP_wasmtime_context LP_wasmtime_table c_ulong LP_wasmtime_val LP_c_ulong",
    ),
    "wasmtime_table_set": (
        "LP_wasmtime_error",
        "LP_wasmtime_context LP_wasmtime_table c_ulong LP_wasmtime_val",
    ),
    "wasmtime_table_size": ("c_ulong", "LP_wasmtime_context LP_wasmtime_table"),
}
"""Result and arguments of every raw function."""

STRUCTURES = {
    "wasmtime_val_t": (32, {"kind": (0, 1), "of": (8, 24)}),
    "wasmtime_valunion_t": (
        24,
        {
            "i32": (0, 4),
            "i64": (0, 8),
            "f32": (0, 4),
            "f64": (0, 8),
            "v128": (0, 16),
            "funcref": (0, 16),
        },
    ),
    "wasmtime_extern_t": (32, {"kind": (0, 1), "of": (8, 24)}),
    "wasmtime_extern_union_t": (
        24,
        {
            "func": (0, 16),
            "global_": (0, 24),
            "memory": (0, 24),
            "sharedmemory": (0, 8),
            "table": (0, 24),
        },
    ),
    "wasmtime_func_t": (16, {"store_id": (0, 8), "__private": (8, 8)}),
    "wasmtime_instance_t": (16, {"store_id": (0, 8)}),
    "wasmtime_memory_t": (24, {}),
    "wasmtime_async_continuation_t": (
        24,
        {"callback": (0, 8), "env": (8, 8), "finalizer": (16, 8)},
    ),
}
"""Size, and offset and size of the fields that are used."""

OPAQUE = {"wasm_trap_t", "wasmtime_context_t", "wasmtime_error_t", "wasmtime_instance_pre_t"}
CALLBACKS = {"wasmtime_func_async_callback_t"}


def names(module_name):
    """What the runtime takes from `raw` or `ffi`."""
    pattern = re.compile(rf"(?<![\w.]){module_name}\.(\w+)")
    return {name for text in SOURCES.values() for name in pattern.findall(text)}


def shown(kind):
    return None if kind is None else kind.__name__


def test_the_installed_version_is_the_one_that_was_read():
    assert version("wasmtime").split(".")[0] == "50", ADVICE
    assert bindings.WASMTIME_MAJOR == 50


def test_every_raw_name_that_the_runtime_uses_is_listed_here():
    assert names("raw") == listed_names()
    assert names("ffi") == {
        "WASMTIME_EXTERN_SHAREDMEMORY",
        "WASMTIME_EXTERNREF",
        "WASMTIME_FUNCREF",
        "wasmtime_extern_t",
        "wasmtime_extern_union",
        "wasmtime_module_t",
    }


def listed_names():
    by_address = set(FUNCTIONS) - {
        "wasmtime_config_async_stack_size_set",
        "wasmtime_context_set_wasi",
        "wasmtime_error_wasm_trace",
        "wasmtime_linker_define_async_func",
        "wasmtime_linker_instantiate_pre",
        "wasmtime_module_deserialize",
    }
    inner = {
        "wasmtime_valunion_t",
        "wasmtime_extern_union_t",
        "wasmtime_memory_t",
        "wasmtime_async_continuation_t",
    }
    structures = set(STRUCTURES) - inner
    wrapped = set(FUNCTIONS) - by_address
    return structures | OPAQUE | CALLBACKS | wrapped | {f"_{name}" for name in by_address}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_raw_function_takes_and_returns_what_is_written_here(name):
    result, arguments = FUNCTIONS[name]
    symbol = getattr(raw, f"_{name}", None)

    assert symbol is not None, ADVICE
    assert shown(symbol.restype) == result, ADVICE
    assert [shown(kind) for kind in symbol.argtypes] == arguments.split(), ADVICE


@pytest.mark.parametrize("name", STRUCTURES)
def test_a_structure_is_laid_out_as_is_written_here(name):
    size, fields = STRUCTURES[name]
    structure = getattr(raw, name)
    found = {
        field: (getattr(structure, field).offset, getattr(structure, field).size)
        for field in fields
    }

    assert ctypes.sizeof(structure) == size, ADVICE
    assert found == fields, ADVICE


def test_the_sizes_that_the_runtime_computes_with_follow():
    assert bindings.VALUE_SIZE == 32
    assert bindings.VALUE_OFFSET == 8
    assert raw.wasmtime_extern_t.of.offset == 8
    assert ffi.wasmtime_extern_t is raw.wasmtime_extern_t
    assert ctypes.sizeof(ffi.wasmtime_extern_union) == 24


def test_the_numbers_of_value_kinds_and_externs_are_those_of_version_50():
    numbers = [ffi.WASMTIME_I32, ffi.WASMTIME_I64, ffi.WASMTIME_F32, ffi.WASMTIME_F64]

    assert [number.value for number in numbers] == list(bindings.KINDS.values())
    assert list(bindings.KINDS) == ["i32", "i64", "f32", "f64"]
    assert ffi.WASMTIME_EXTERN_SHAREDMEMORY.value == 4
    assert (ffi.WASMTIME_FUNCREF.value, ffi.WASMTIME_EXTERNREF.value) == (5, 6)


def test_the_async_callback_has_eight_arguments_and_a_continuation_last():
    kind = raw.wasmtime_func_async_callback_t
    arguments = [shown(argument) for argument in kind._argtypes_]

    assert kind._restype_ is None
    assert len(arguments) == 8
    assert arguments[2:4] == ["LP_wasmtime_val", "c_ulong"]
    assert arguments[-1] == "LP_wasmtime_async_continuation_t"
    continuation = raw.wasmtime_func_async_continuation_callback_t
    assert continuation._restype_ is ctypes.c_bool
    assert list(continuation._argtypes_) == [ctypes.c_void_p]  # so strlen can stand for it


def test_the_parts_of_the_classes_that_are_private_are_there():
    engine = wasmtime.Engine()
    store, linker = wasmtime.Store(engine), wasmtime.Linker(engine)

    assert bindings.address_of(store._context())
    assert bindings.address_of(store.ptr())
    assert bindings.address_of(engine.ptr())
    assert callable(wasmtime.InstancePre._from_ptr)
    assert bindings.address_of(linker.ptr())
    assert bindings.address_of(wasmtime.Config().ptr())
    assert bindings.address_of(wasmtime.FuncType([], []).ptr())
    for kind in (wasmtime.Trap, wasmtime.WasmtimeError):
        assert callable(kind._from_ptr)
    assert issubclass(wasmtime.ExitTrap, wasmtime.WasmtimeError)
    assert not issubclass(wasmtime.Trap, wasmtime.WasmtimeError)
    assert hasattr(wasmtime._func, "LAST_EXCEPTION")


def test_a_shared_memory_has_an_address_and_keeps_it():
    config = wasmtime.Config()
    config.wasm_threads = config.shared_memory = True
    engine = wasmtime.Engine(config)
    memory = wasmtime.SharedMemory(
        engine, wasmtime.MemoryType(wasmtime.Limits(1, 1000), shared=True)
    )
    before = bindings.address_of(memory.data_ptr())
    memory.grow(900)

    assert bindings.address_of(memory.data_ptr()) == before
    assert memory.data_len() == 901 * 65536


def test_strlen_over_one_flag_byte_says_whether_to_resume():
    flag = (ctypes.c_uint8 * 4)()
    ask = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)(bindings.STRLEN)
    answers = [ask(ctypes.addressof(flag))]
    for answer in (1, 5, 255):
        flag[0] = answer
        answers.append(ask(ctypes.addressof(flag)))

    assert answers == [False, True, True, True]


BOTH = pytest.mark.parametrize("library", [native.LIBRARY, None], ids=["native", "python"])


@BOTH
def test_the_callback_copies_the_continuation_and_nothing_else(library, monkeypatch):
    """argument 0 → two words → the continuation."""
    monkeypatch.setattr(native, "LIBRARY", library)
    words = (ctypes.c_uint64 * 2)(11, 22)
    value = raw.wasmtime_val_t()
    value.of.i64 = ctypes.addressof(words)
    found = (ctypes.c_uint64 * 5)(*[0x3F] * 5)
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_size_t, ctypes.c_void_p,
                            ctypes.c_size_t, *[ctypes.c_void_p] * 2)  # fmt: skip
    address = ctypes.cast(suspension.callback(), ctypes.c_void_p).value
    kind(address)(
        None, None, ctypes.addressof(value), 1, None, 0, None, ctypes.addressof(found) + 8
    )

    assert list(found) == [0x3F, 11, 22, 0x3F, 0x3F]


def deadline_callback():
    kind = ctypes.CFUNCTYPE(ctypes.c_size_t, *[ctypes.c_void_p] * 4)
    return kind(ctypes.cast(epochs.callback(), ctypes.c_void_p).value)


@BOTH
def test_a_deadline_suspends_then_gives_a_turn_and_hands_on_an_error(library, monkeypatch):
    """DEADLINE and TURN of a control block → the ticks and the kind, or the error."""
    monkeypatch.setattr(native, "LIBRARY", library)
    block = (ctypes.c_uint8 * at.CONTROL_SIZE)()
    state = ctypes.addressof(block) + at.DEADLINE
    deadline, turn = (
        ctypes.c_uint64.from_address(state),
        ctypes.c_uint32.from_buffer(block, at.TURN),
    )
    turn.value = 5
    ticks, kind = (ctypes.c_uint64 * 3)(*[9] * 3), (ctypes.c_uint8 * 3)(*[9] * 3)
    call = deadline_callback()

    def decide():
        error = call(None, state, ctypes.addressof(ticks) + 8, ctypes.addressof(kind) + 1)
        return error, deadline.value, list(ticks), list(kind)

    yields = (0, epochs.SUSPENDED, [9, 0, 9], [9, 1, 9])
    assert decide() == yields
    assert decide() == (0, 0, [9, 5, 9], [9, 0, 9])
    assert decide() == yields
    deadline.value = 0x7000_0000_1234
    assert decide() == (0x7000_0000_1234, 0, [9, 0, 9], [9, 1, 9])
    assert sum(block) == turn.value


COUNTING = """(module
  (global (export "passed") (mut i32) (i32.const 0))
  (func $count (export "count")
    (loop $more (global.set 0 (i32.add (global.get 0) (i32.const 1))) (br $more))))"""


@BOTH
def test_a_guest_that_gets_an_error_at_its_deadline_runs_no_further(library, monkeypatch):
    monkeypatch.setattr(native, "LIBRARY", library)
    config = wasmtime.Config()
    config.epoch_interruption = True
    engine = wasmtime.Engine(config)
    store = wasmtime.Store(engine)
    exports = wasmtime.Instance(store, wasmtime.Module(engine, COUNTING), []).exports(store)
    block = (ctypes.c_uint8 * at.CONTROL_SIZE)()
    state, context = ctypes.addressof(block) + at.DEADLINE, bindings.context_of(store)
    callback = bindings.address_of(epochs.callback())
    bindings.call_at_deadline(bindings.address_of(store.ptr()), callback, state, None)
    bindings.set_epoch_deadline(context, 0)
    left, room = (ctypes.c_uint64 * 2)(), raw.wasmtime_val_t()
    places = [ctypes.addressof(part) for part in (room, left)]
    function = ctypes.addressof(exports["count"]._func)
    future = bindings.call_async(
        context, function, places[0], 0, places[0], 0, places[1], places[1] + 8
    )
    passed = []
    for _ in range(3):  # turns of 0 ticks: a guest is suspended again at once
        assert not bindings.poll(future)
        passed.append(exports["passed"].value(store))
    ctypes.c_uint64.from_address(state).value = bindings.new_error(b"enough")
    assert bindings.poll(future)
    bindings.delete_future(future)
    error = bindings.error_at(left[1])

    assert left[0] == 0
    assert "enough" in str(error)
    assert [frame.func_name for frame in bindings.frames_of(error)] == ["count"]
    assert exports["passed"].value(store) - passed[-1] <= 1


def test_the_version_ranges_of_the_package_say_the_same():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert "wasmtime==50.*" in project["dependencies"]
    assert project["requires-python"] == ">=3.11,<3.15"  # 3.14 checks bounds of stacks; fibers run


@pytest.mark.parametrize(
    ("python", "is_pure", "is_refused"),
    [((3, 14, 0), True, True), ((3, 14, 0), False, False), ((3, 14, 1), True, False)],
)
def test_python_3_14_0_is_refused_where_it_would_run_on_the_stacks_of_guests(
    monkeypatch, python, is_pure, is_refused
):
    if is_pure:
        monkeypatch.setattr(native, "LIBRARY", None)
        monkeypatch.setattr(native, "MISSING", "no compiler was found")
    monkeypatch.setattr(suspension.sys, "version_info", (*python, "final", 0))
    refusal = pytest.raises(UsageError, match=r"3\.14\.0 .*\(no compiler was found\): take")
    with refusal if is_refused else contextlib.nullcontext():
        assert suspension.callback() is (suspension._python if is_pure else native.LIBRARY.suspend)


@pytest.mark.parametrize("found", ["49.0.0", "51.0.0", "5.0.1", "500.0"])
def test_another_version_is_refused_with_the_command_that_helps(tmp_path, found):
    fake = tmp_path / f"wasmtime-{found}.dist-info"
    fake.mkdir()
    (fake / "METADATA").write_text(f"Metadata-Version: 2.1\nName: wasmtime\nVersion: {found}\n")
    script = """
from arkml.errors import UsageError
try:
    import arkml
    arkml.Host()
except UsageError as error:
    print(error)
"""
    path = os.pathsep.join((str(tmp_path), PYTHONPATH))
    run = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.stdout == (
        f"arkml needs wasmtime 50.*, found {found}: pip install 'wasmtime==50.*'\n"
    ), run.stderr
    assert run.returncode == 0
