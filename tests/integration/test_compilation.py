"""Compilation of modules: where it runs, its limits, Ctrl-C, and what is kept of it."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.module_bombs import BOMBS, REAL, body, branches, change, get, module, wide_loops
from tests.waiting import eventually

from arkml import Host
from arkml.errors import ModuleRejected, ModuleTooComplex
from arkml.runtime.compilation import child
from arkml.runtime.compilation.child import compile_in_child
from arkml.runtime.compilation.compiler import settings

STACK = 1 << 19
LARGE = REAL / "ark_api" / "cmdlet_infer_017.wasm"
QUICK = REAL / "c_cartpole.wasm"
LOAD = """
import sys
from arkml import Host
sys.executable = "/nowhere"  # there is no process that compiles
with Host() as host:
    for path in sys.argv[1:]:
        print(len(host.compile(path).binary))
"""
SLOW = """
import sys
from arkml.runtime.compilation.child import compile_in_child
from arkml.runtime.interrupts import GUARD
GUARD.install()  # as a host does
compile_in_child(sys.stdin.buffer.read(), "slow", 1 << 19, 60.0)
"""


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    monkeypatch.setenv("ARKML_CACHE", str(tmp_path / "cache"))
    return tmp_path


def children_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def entries(places):
    return {path.name: path.read_bytes() for path in (places / "cache").glob("*")}


def unlike(code, number):
    """A module with `code` that no other test has compiled."""
    return module([body(b"\x41" + bytes((number,)) + b"\x1a" + code, 1)])


def test_a_large_module_is_compiled_by_another_process_and_a_small_one_here(host):
    before = children_seconds()
    host.compile(unlike(b"", 1))
    here = children_seconds() - before
    host.compile(unlike(change(0) * 10_000, 2))

    assert here == 0
    assert children_seconds() - before > 0


def test_another_process_needs_no_compiler_for_a_module_that_was_compiled(host, places):
    paths = [str(places / name) for name in ("large.wasm", "quick.wasm")]
    Path(paths[0]).write_bytes(unlike(change(0) * 10_000, 3))
    Path(paths[1]).write_bytes(unlike(b"", 4))
    for path in paths:
        host.compile(path)
    before = entries(places)
    output = subprocess.check_output([sys.executable, "-c", LOAD, *paths], text=True)

    assert output.split() == [str(Path(path).stat().st_size) for path in paths]
    assert entries(places).keys() >= before.keys()


def test_a_damaged_entry_is_made_again(host, places):
    path = places / "quick.wasm"
    path.write_bytes(unlike(b"", 5))
    host.compile(path)
    before = entries(places)
    for name in before:
        (places / "cache" / name).write_bytes(before[name][:-1])
    subprocess.check_call([sys.executable, "-c", LOAD, str(path)], stdout=subprocess.DEVNULL)

    after = entries(places)
    assert {name: len(after[name]) for name in before} == {
        name: len(content) for name, content in before.items()
    }


def test_the_shim_of_a_new_process_comes_from_the_cache(places):
    shown = "from arkml import Host; Host().close()"
    subprocess.check_call([sys.executable, "-c", shown])
    before = entries(places)
    subprocess.check_call([sys.executable, "-c", shown])

    assert len(before) == 1
    assert entries(places) == before


def test_without_a_cache_modules_are_compiled_all_the_same(monkeypatch, places):
    monkeypatch.setenv("ARKML_CACHE", "off")
    with Host() as host:
        host.compile(unlike(change(0) * 10_000, 6))

    assert list(places.iterdir()) == []


@pytest.mark.parametrize("name", ["loops in each other, over locals", "branches to one loop"])
def test_a_host_refuses_a_module_that_takes_too_much_and_goes_on(host, name):
    before = children_seconds()
    with pytest.raises(ModuleTooComplex, match="s of processor time, the limit for its size is"):
        host.load(BOMBS[name])

    assert children_seconds() == before
    assert host.load(QUICK).failure is None


def test_the_memory_of_the_process_is_limited():
    with pytest.raises(ModuleTooComplex, match="a guest took more than 300 MiB of memory"):
        compile_in_child(wide_loops(1_000, 100), "a guest", STACK, 60.0)


def test_the_processor_time_of_the_process_is_limited(monkeypatch):
    monkeypatch.setattr(child, "_SECONDS_PER_MB", 1)
    with pytest.raises(ModuleTooComplex, match="a guest took more than 1 s of processor time"):
        compile_in_child(branches(10_000, 100), "a guest", STACK, 60.0)


def test_the_process_is_ended_at_the_deadline():
    with pytest.raises(ModuleTooComplex, match=r"a guest was not compiled within 0\.2 s: .* raise"):
        compile_in_child(branches(10_000, 100), "a guest", STACK, 0.2)


def test_the_process_says_what_is_not_valid():
    with pytest.raises(ModuleRejected, match=r"a guest is not .* can run: .*type mismatch"):
        compile_in_child(module([body(get(0), 1)]), "a guest", STACK, 60.0)


def test_a_process_that_cannot_be_understood_is_an_error(monkeypatch, tmp_path):
    program = tmp_path / "program"
    program.write_text(f"#!{sys.executable}\nimport os; os.write(1, b'?')\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    with pytest.raises(ModuleTooComplex, match="a guest ended its process with 0: no message"):
        compile_in_child(module([]), "a guest", STACK, 60.0)


def test_the_process_gets_no_environment_variables(monkeypatch, tmp_path):
    program = tmp_path / "program"
    program.write_text(f"#!{sys.executable}\nimport os, sys; sys.exit(str(sorted(os.environ)))\n")
    program.chmod(0o700)
    monkeypatch.setenv("SECRET", "secret")
    monkeypatch.setattr(sys, "executable", str(program))
    with pytest.raises(ModuleTooComplex, match="MALLOC_ARENA_MAX") as raised:
        compile_in_child(module([]), "a guest", STACK, 60.0)

    assert "SECRET" not in str(raised.value)


def test_ctrl_c_is_heard_while_a_module_is_compiled():
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with process.stdin as module_:
        module_.write(branches(10_000, 100))
    process.stdin = None
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    compiler = int(eventually(lambda: children.read_text().split())[0])
    os.kill(process.pid, signal.SIGINT)
    _, messages = process.communicate()

    assert b"KeyboardInterrupt" in messages
    assert not Path(f"/proc/{compiler}").exists()


def test_every_setting_that_machine_code_depends_on_is_set_by_name():
    assert settings(STACK) == {
        "wasm_threads": True,
        "shared_memory": True,
        "wasm_memory64": False,
        "epoch_interruption": True,
        "memory_may_move": False,
        "max_wasm_stack": STACK,
    }


def test_the_program_of_the_process_imports_nothing_of_this_package():
    script = "import runpy, sys; runpy.run_path(sys.argv[1]); print(*sys.modules)"
    loaded = subprocess.check_output(
        [sys.executable, "-c", script, child.compiler.__file__], text=True
    ).split()

    assert not [name for name in loaded if name.partition(".")[0] == "arkml"]


def test_a_real_guest_is_compiled_within_the_limits(host):
    assert host.compile(LARGE).info.size == LARGE.stat().st_size
