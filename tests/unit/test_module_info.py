"""What a module says about itself."""

from pathlib import Path

import pytest
from wasmtime import wat2wasm

from arkml.errors import ModuleRejected
from arkml.runtime.module.description import EntryPoint, ModuleKind, RequiredApi, describe
from arkml.runtime.module.parsing import parse
from arkml.runtime.module.wasm_types import FunctionType, MemoryType

ROOT = Path(__file__).parents[2]
ARK_GUESTS = ROOT / "fixtures" / "guests" / "ark_api"
ALLOCATOR = """
  (func (export "ark_alloc") (param i32 i32) (result i32) (i32.const 0))
  (func (export "ark_free") (param i32 i32 i32))
"""
APPLET = '(func (export "ark_applet_update"))'
CMDLET = '(func (export "ark_cmdlet_run") (param i32 i32) (result i32) (i32.const 0))'
SERVLET = '(func (export "ark_servlet_request") (param i32 i32) (result i32) (i32.const 0))'
WASI = '(func (export "_start"))'
TRANSFORM = '(func (export "transform") (param i32 i32) (result i32) (i32.const 0))'
PLAIN = '(func (export "half") (param f64) (result f64) (local.get 0))'
BYTES_TO_STATUS = FunctionType(("i32", "i32"), ("i32",))


def info(*parts):
    return describe(parse(bytes(wat2wasm(f"(module {' '.join(parts)})"))))


@pytest.mark.parametrize(
    ("parts", "kind"),
    [
        ([APPLET], ModuleKind.APPLET),
        ([CMDLET, ALLOCATOR], ModuleKind.CMDLET),
        ([SERVLET, ALLOCATOR], ModuleKind.SERVLET),
        ([WASI], ModuleKind.WASI_COMMAND),
        ([TRANSFORM, ALLOCATOR], ModuleKind.MODULE_RUN),
        ([TRANSFORM], ModuleKind.PLAIN),
        ([PLAIN], ModuleKind.PLAIN),
        ([], ModuleKind.PLAIN),
    ],
)
def test_the_exports_decide_the_kind(parts, kind):
    assert info(*parts).kind is kind


def test_a_module_may_offer_several_entry_points_most_particular_first():
    found = info(PLAIN, TRANSFORM, ALLOCATOR, CMDLET, APPLET)

    assert [(entry.name, entry.kind) for entry in found.entry_points] == [
        ("ark_applet_update", ModuleKind.APPLET),
        ("ark_cmdlet_run", ModuleKind.CMDLET),
        ("transform", ModuleKind.MODULE_RUN),
        ("half", ModuleKind.PLAIN),
    ]


def test_what_the_host_or_the_language_calls_is_no_entry_point():
    found = info(
        ALLOCATOR,
        '(func (export "_initialize"))',
        '(func (export "ark_initialize"))',
        '(func (export "ark_register_panic_hook"))',
        '(func (export "ark_state_persist") (result i32) (i32.const 0))',
        '(func (export "ark_cmdlet_help"))',
        '(func (export "__new") (param i32 i32) (result i32) (i32.const 0))',
    )

    assert found.entry_points == ()
    assert found.takes_bytes


def test_an_entry_point_of_the_wrong_type_is_none_and_told():
    found = info('(func (export "ark_applet_update") (param i32))', PLAIN)

    assert found.entry_points == (
        EntryPoint("half", ModuleKind.PLAIN, FunctionType(("f64",), ("f64",))),
    )
    assert found.misfits == (
        "ark_applet_update is (i32) -> (), and no entry point: that is () -> ()",
    )
    assert info(APPLET, CMDLET).misfits == ()


def test_a_reserved_name_that_is_misspelled_is_told_with_what_may_be_meant():
    found = info('(func (export "ark_aplet_update"))', '(func (export "ark_initializer"))')

    assert found.misfits == (
        "nothing calls the export ark_aplet_update: did you mean ark_applet_update?",
        "nothing calls the export ark_initializer: did you mean ark_initialize?",
    )
    assert info(APPLET, '(func (export "ark_frees"))').misfits
    assert info(APPLET, '(func (export "ark_x"))').misfits == ()


def test_imports_and_exports_are_told_with_their_types():
    found = info(
        '(import "ark-ml-v1" "ml__drop_future" (func (param i64) (result i32)))',
        '(import "env" "g" (global (mut f32)))',
        '(memory (export "memory") 2 8)',
        '(table (export "table") 3 funcref)',
        PLAIN,
    )

    assert [(entry.module, entry.name, str(entry.type)) for entry in found.imports] == [
        ("ark-ml-v1", "ml__drop_future", "(i64) -> (i32)"),
        ("env", "g", "global mut f32"),
    ]
    assert [(entry.name, str(entry.type)) for entry in found.exports] == [
        ("memory", "memory 2..8"),
        ("table", "table 3.. funcref"),
        ("half", "(f64) -> (f64)"),
    ]
    assert found.memory == MemoryType(2, 8)


def exported_word(name, address, *segments):
    return info(
        "(memory 4)",
        f'(global (export "{name}") i32 (i32.const {address}))',
        *segments,
    )


def data(address, word, before=b""):
    text = "".join(f"\\{byte:02x}" for byte in before + word.to_bytes(8, "little"))
    return f'(data (i32.const {address}) "{text}")'


@pytest.mark.parametrize(
    ("word", "version"),
    [(0x100000, "0.16.0"), (0x11002B, "0.17.0-pre.43"), (0x1020304, "1.2.3-pre.4")],
)
def test_the_crate_version_is_read_behind_its_address(word, version):
    found = exported_word("ARK_PACKED_FFI_CRATE_VERSION", 1027, data(1024, word, b"abc"))

    assert found.crate_version == version
    assert found.required == ()


def test_a_required_api_is_named_by_its_import_module():
    found = exported_word("ARK_API_ML", 64, data(64, 0xAED601094F073C83))

    assert found.required == (RequiredApi("ARK_API_ML", 0xAED601094F073C83, "ark-ml-v4"),)


def test_an_api_that_this_host_does_not_know_keeps_its_number():
    found = exported_word("ARK_API_AUDIO", 64, data(64, 0x1234))

    assert found.required == (RequiredApi("ARK_API_AUDIO", 0x1234, None),)


def test_a_later_segment_covers_an_earlier_one():
    found = exported_word("ARK_API_TIME", 64, data(64, 1), data(64, 0x6B957BE8995268BE))

    assert found.required[0].module == "ark-time-v1"


@pytest.mark.parametrize(
    "segments",
    [
        [],
        ['(data (i32.const 64) "1234567")'],
        [data(65, 5)],
        ['(data "12345678")'],
        ['(data (i32.add (i32.const 32) (i32.const 32)) "12345678")'],
    ],
    ids=["no data", "too short", "behind it", "passive", "computed"],
)
def test_a_word_that_the_bytes_do_not_show_is_unknown(segments):
    found = exported_word("ARK_API_ML", 64, *segments)

    assert found.required == (RequiredApi("ARK_API_ML", None, None),)


def test_an_address_above_two_gigabytes_is_no_negative_one():
    found = info(
        "(memory 65536)",
        '(global (export "ARK_API_ML") i32 (i32.const -16))',
        data(0xFFFFFFF0 - 0x1_0000_0000, 0x1234),
    )

    assert found.required[0].id == 0x1234


def test_a_module_that_requires_more_apis_than_there_are_is_refused():
    exports = [f'(global (export "ARK_API_{n}") i32 (i32.const 0))' for n in range(65)]

    with pytest.raises(ModuleRejected, match="65 APIs"):
        info(*exports)


def test_a_word_that_is_no_address_is_unknown():
    found = info('(global (export "ARK_API_ML") i64 (i64.const 64))', "(memory 1)", data(64, 5))

    assert found.required == (RequiredApi("ARK_API_ML", None, None),)


@pytest.mark.parametrize(
    ("name", "kind", "entry_points", "version", "apis"),
    [
        (
            "applet_train_016",
            ModuleKind.APPLET,
            ["ark_applet_update", "configure", "status"],
            "0.16.0",
            {"ark-ml-v4"},
        ),
        ("cmdlet_infer_016", ModuleKind.CMDLET, ["ark_cmdlet_run"], "0.16.0", {"ark-ml-v4"}),
        (
            "cmdlet_train_016",
            ModuleKind.CMDLET,
            ["ark_cmdlet_run"],
            "0.16.0",
            {"ark-ml-v4", "ark-time-v1"},
        ),
        (
            "module_run_016",
            ModuleKind.MODULE_RUN,
            ["lengths", "transform"],
            "0.16.0",
            {"ark-ml-v4"},
        ),
        (
            "cmdlet_infer_017",
            ModuleKind.CMDLET,
            ["ark_cmdlet_run"],
            "0.17.0-pre.43",
            {"ark-ml-v4", "ark-ml-inference-v0"},
        ),
    ],
)
def test_real_guests_say_what_they_are(name, kind, entry_points, version, apis):
    found = describe(parse((ARK_GUESTS / f"{name}.wasm").read_bytes()))

    assert found.kind is kind
    assert [entry.name for entry in found.entry_points] == entry_points
    assert found.crate_version == version
    assert {api.module for api in found.required} == apis
    assert found.takes_bytes
