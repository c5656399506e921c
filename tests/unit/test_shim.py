"""What the shim between a guest and the host exports."""

from pathlib import Path

import pytest

from arkml import Host, WasiGrant
from arkml.runtime.shared_engine import TABLES, shared_engine
from arkml.runtime.shim import render

GUESTS = Path(__file__).parents[2] / "fixtures" / "guests"
OWN = {"memory", "base", "continuation", "frame", "frames"}
"""What it has for the host, whatever the guest imports."""


def exported(host, program):
    shim = shared_engine(host.limits.wasm_stack).shim(program.shim_exports)
    return {export.name for export in shim.exports}


@pytest.mark.parametrize("name", ["c_applet", "c_pendulum", "bench_guest"])
def test_a_shim_exports_what_the_guest_imports(name):
    with Host() as host:
        program = host.compile(GUESTS / f"{name}.wasm")
        imports = {render.export_name(one.module, one.name) for one in program.info.imports}

        assert exported(host, program) == OWN | imports


def test_a_shim_under_wasi_has_what_the_shim_of_wasi_imports():
    with Host(wasi=WasiGrant()) as host:
        program = host.compile(GUESTS / "wasi_command.wasm")
        found = exported(host, program) - OWN

        assert found
        assert {name.partition(".")[0] for name in found} == {"arkml-wasi"}


def test_guests_with_the_same_imports_share_a_shim():
    with Host() as first, Host() as second:
        text = '(module (import "ark-core-v3" "core__log" (func (param i32 i32 i32) (result i32)))'
        one, other = first.compile(f"{text})".encode()), second.compile(f"{text} (func))".encode())
        engine = shared_engine(first.limits.wasm_stack)

        assert one.shim_exports == other.shim_exports
        assert engine.shim(one.shim_exports) is engine.shim(other.shim_exports)


def test_functions_keep_their_numbers_whatever_is_exported():
    (api, function) = list(render.host_imports(TABLES))[-1]
    wanted = {(api.module, api.symbol(function))}
    alone, full = render.module(TABLES, wanted), render.module(TABLES, _everything())
    own = [line for line in alone.splitlines() if line not in full.splitlines()]

    assert not own
    assert len(alone) < len(full) / 2


def _everything():
    return {(api.module, api.symbol(one)) for api in TABLES for one in api.functions}
