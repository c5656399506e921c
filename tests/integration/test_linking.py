import logging

import pytest
from tests.integration.callback_policy import assert_host_works
from tests.integration.guest_text import LOG, POLL_BOOL, function, i32, module, wasi

from arkml.errors import GuestTrap, LinkError
from arkml.runtime.wasi.linking import WasiGrant


def imported(module_name, name, kind, label="$f"):
    return f'(import "{module_name}" "{name}" (func {label} {kind}))'


def test_all_that_is_missing_is_told_at_once_with_the_types_side_by_side(host):
    guest = module(
        imports=(
            imported("ark-ml-v9", "ml__dream", "(param i64 f32) (result i32)", "$a"),
            imported("ark-ml-v1", "ml__drop_future", "(param i32) (result i32)", "$b"),
            imported("env", "printf", "(param i32 i32)", "$c"),
            imported("ark-core-v3", "core__log", "(param i32 i32 i32) (result i32)", "$d"),
        )
    )
    with pytest.raises(LinkError) as error:
        host.load(guest, name="npc.wasm")
    first, *lines, hint = str(error.value).splitlines()

    assert first.startswith("npc.wasm needs 3 imports that this host does not have")
    assert hint.strip().startswith(
        "a game gives functions of its own: Host(imports={('env', 'printf')"
    )
    assert [line.split()[0] for line in lines] == [
        "ark-ml-v9.ml__dream",
        "ark-ml-v1.ml__drop_future",
        "env.printf",
    ]
    assert "(i64 f32) -> (i32)" in lines[0]
    assert "nothing" in lines[0]
    assert lines[1].index("(i32) -> (i32)") < lines[1].index("(i64) -> (i32)")
    assert_host_works(host)


def test_one_missing_import_is_told_in_the_singular(host):
    with pytest.raises(LinkError, match="needs an import that this host does not have"):
        host.load(module(imports=(imported("env", "printf", ""),)))


def test_a_module_for_the_wasi_of_before_its_first_version_is_told_what_to_do(host):
    guest = module(imports=(imported("wasi_unstable", "proc_exit", "(param i32)"),))
    with pytest.raises(LinkError) as error:
        host.load(guest)

    assert str(error.value).splitlines()[-1].strip() == (
        "wasi_unstable is of 2019: build the module by a compiler for wasi_snapshot_preview1"
    )


@pytest.mark.parametrize("name", ["emscripten_resize_heap", "invoke_vii", "__cxa_throw"])
def test_what_emscripten_has_in_javascript_is_told_how_to_build_without(host, name):
    with pytest.raises(LinkError, match="build with -sSTANDALONE_WASM, and without -fexceptions"):
        host.load(module(imports=(imported("env", name, ""),)))


def test_nothing_is_compiled_or_run_before_linking(host):
    guest = module(
        "(func $begin unreachable) (start $begin)", imports=(imported("env", "gone", ""),)
    )
    with pytest.raises(LinkError):
        host.load(guest)


@pytest.mark.parametrize(
    ("item", "kind"),
    [
        ('(import "env" "table" (table 1 funcref))', "table"),
        ('(import "env" "stack" (global i32))', "global"),
        ('(import "ark-ml-v1" "ml__drop_future" (global i64))', "global"),
    ],
)
def test_an_import_that_is_no_function_is_listed_too(host, item, kind):
    with pytest.raises(LinkError, match=r"env|ark-ml-v1") as error:
        host.load(module(imports=(item,)))

    assert kind in str(error.value)


def test_names_of_imports_cannot_write_to_a_terminal(host):
    guest = module(imports=(imported("env", "\\1b[2Jclear\\07", ""),))
    with pytest.raises(LinkError) as error:
        host.load(guest)

    assert "\x1b" not in str(error.value)
    assert "clear" in str(error.value)


def test_a_module_may_import_the_same_function_twice(host):
    guest = host.load(
        module(
            function("f", f"(i32.add (call $a {i32(0)} {i32(0)} {i32(0)})"
                     f" (call $b {i32(0)} {i32(0)} {i32(0)}))", result="i32"),
            imports=(
                imported("ark-core-v3", "core__log", "(param i32 i32 i32) (result i32)", "$a"),
                imported("ark-core-v3", "core__log", "(param i32 i32 i32) (result i32)", "$b"),
            ),
        )
    )  # fmt: skip

    assert guest.call("f") == 0


def test_names_of_the_host_itself_are_not_for_guests(host):
    for name in ("suspend", "columns", "memory"):
        with pytest.raises(LinkError):
            host.load(module(imports=(imported("arkml", name, "(param i64)"),)))
    with pytest.raises(LinkError):
        host.load(module(imports=(imported("arkml-wasi", "sched_yield", "(result i32)"),)))


def test_a_memory_that_the_host_owns_cannot_be_imported(host):
    guest = '(import "arkml" "columns" (memory 1))'
    loaded = host.load(module(function("peek", "(i32.load (i32.const 64))", result="i32"),
                              memory="", imports=(guest,)))  # fmt: skip

    assert loaded.call("peek") == 0  # it is a memory of its own under that name


# WASI that is not granted.


def test_wasi_that_is_not_granted_is_missing_and_the_message_says_why(host):
    with pytest.raises(LinkError, match="WASI is not granted") as error:
        host.load(module(imports=(wasi("fd_write", "i32 i32 i32 i32"), wasi("sched_yield", ""))))

    assert str(error.value).count("WASI is not granted (--wasi), in Python by `wasi`") == 2


def test_wasi_that_is_granted_but_unknown_or_mistyped_is_missing(make_host):
    host = make_host(wasi=WasiGrant())
    guest = module(imports=(wasi("fd_levitate", "i32"), wasi("fd_write", "i32")))
    with pytest.raises(LinkError) as error:
        host.load(guest)

    assert "fd_levitate" in str(error.value)
    assert "(i32 i32 i32 i32) -> (i32)" in str(error.value)
    assert "not granted" not in str(error.value)


# Stubs.

STUBBED = module(
    function("code", "(call $a (i64.const 1) (f32.const 1))", result="i32"),
    function("void", "(call $b (i32.const 1)) (call $b (i32.const 2))"),
    function("wide", "(call $c)", result="i64"),
    function("pair", "(call $d)", result="i32 i32"),
    function("log", f"(call ${LOG} {i32(2)} {i32(0)} {i32(0)})", result="i32"),
    uses=(LOG,),
    imports=(
        imported("ark-ml-v9", "ml__code", "(param i64 f32) (result i32)", "$a"),
        imported("ark-ml-v9", "ml__void", "(param i32)", "$b"),
        imported("ark-ml-v9", "ml__wide", "(result i64)", "$c"),
        imported("ark-new", "new__pair", "(result i32 i32)", "$d"),
    ),
)


def test_without_being_asked_nothing_is_stubbed(host):
    with pytest.raises(LinkError, match="4 imports"):
        host.load(STUBBED)


def test_a_stub_answers_that_the_function_is_not_available(make_host):
    guest = make_host(stub_missing=True).load(STUBBED)

    assert guest.call("code") == 2
    assert guest.call("void") is None
    assert guest.call("log") == 0
    assert guest.failure is None


@pytest.mark.parametrize(
    ("name", "wanted"), [("wide", "ark-ml-v9.ml__wide"), ("pair", "ark-new.new__pair")]
)
def test_a_stub_that_has_no_answer_traps_and_names_the_import(make_host, name, wanted):
    guest = make_host(stub_missing=True).load(STUBBED)
    with pytest.raises(GuestTrap, match=wanted):
        guest.call(name)


def test_each_stub_is_logged_once(make_host, caplog):
    caplog.set_level(logging.DEBUG)
    host = make_host(stub_missing=True)
    guest = host.load(STUBBED, name="npc")
    for _ in range(3):
        guest.call("void")
        guest.call("code")
    told = [record.getMessage() for record in caplog.records]

    assert len([text for text in told if "ark-ml-v9.ml__void" in text]) == 1
    assert any("npc" in record.name + record.getMessage() for record in caplog.records)


def test_only_unknown_functions_of_ark_modules_are_stubbed(make_host):
    host = make_host(stub_missing=True)
    for item in (
        imported("env", "gone", "(result i32)"),
        imported("ark-ml-v1", "ml__drop_future", "(param i32) (result i32)"),
        imported("wasi_snapshot_preview1", "sched_yield", "(result i32)"),
        '(import "ark-ml-v9" "global" (global i32))',
    ):
        with pytest.raises(LinkError):
            host.load(module(imports=(item,)))


def test_stubs_and_wasi_go_together(make_host):
    host = make_host(stub_missing=True, wasi=WasiGrant())
    guest = host.load(
        module(
            function("both", "(i32.add (call $code) (call $sched_yield))", result="i32"),
            uses=(POLL_BOOL,),
            imports=(imported("ark-x", "code", "(result i32)", "$code"), wasi("sched_yield", "")),
        )
    )

    assert guest.call("both") == 2
