"""A module is compiled once a process, and hosts that come and go leave nothing."""

import logging
import subprocess
import sys

import pytest
from tests.integration.command_line import ENVIRONMENT, GUESTS, ROOT
from tests.integration.guest_text import ACTOR

import arkml
from arkml import Host, Limits, ModuleError
from arkml.errors import MemoryLimitExceeded

PENDULUM = GUESTS / "c_pendulum.wasm"


def python(*arguments):
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env=ENVIRONMENT, cwd=ROOT, timeout=120
    )


def code(host, source=PENDULUM, **options):
    return host.compile(source, **options).module


def test_hosts_share_what_was_compiled():
    with Host() as one, Host() as other:
        shared = [code(one), code(one), code(other, PENDULUM.read_bytes(), name="another")]

    assert len(set(map(id, shared))) == 1


def test_a_module_stays_compiled_after_its_host():
    with Host() as one:
        first = id(one.compile(PENDULUM)._compiled)
    with Host() as other:
        again = id(other.compile(PENDULUM)._compiled)

    assert first == again


def test_environments_share_the_module_of_their_file():
    made = [arkml.GuestEnv(PENDULUM, configure=(1, "{seed}")) for _ in range(3)]
    modules = {id(env.module.module) for env in made}
    for env in made:
        env.close()

    assert len(modules) == 1


def test_a_compiled_module_has_the_name_that_it_was_asked_for_by():
    with Host() as host:
        names = [host.compile(ACTOR, name=name).name for name in ("a", "b")]

    assert names == ["a", "b"]


def test_a_limit_refuses_a_module_that_is_compiled_already():
    with Host() as one, Host(limits=Limits(memory_bytes=0)) as other:
        one.compile(PENDULUM)

        with pytest.raises(MemoryLimitExceeded):
            other.compile(PENDULUM)


def test_a_module_that_another_host_links_by_wasi_or_stubs_is_refused_without_them():
    text = b'(module (import "ark-none-v1" "f" (func)) (func (export "g") (call 0)))'
    command = GUESTS / "wasi_command.wasm"
    with Host(stub_missing=True, wasi=arkml.WasiGrant()) as one, Host() as other:
        one.compile(text)
        one.compile(command)

        for source in (text, command):
            with pytest.raises(ModuleError):
                other.compile(source)


def test_the_stubs_of_a_module_are_warned_about_once(caplog):
    text = b'(module (import "ark-none-v1" "f" (func)) (func (export "g") (call 0)))'
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            with Host(stub_missing=True) as host:
                host.compile(text)

    assert sum("ark-none-v1" in record.message for record in caplog.records) == 1


def test_a_fork_compiles_for_itself():
    script = f"""
import os, arkml
module = {str(PENDULUM)!r}
with arkml.Host() as host:
    host.compile(module)
    child = os.fork()
    if not child:
        with arkml.Host() as own:
            shared = own.compile(module).module is host.compile(module).module
            print("shared", shared, flush=True)
        os._exit(0)
    print("status", os.waitpid(child, 0)[1])
"""
    run = python("-c", script)

    assert run.stdout.splitlines() == ["shared False", "status 0"], run.stderr


def test_300_environments_leave_nothing():
    """Address space, memory, mappings, descriptors and threads after 300 as after 10."""
    run = python("-m", "tests.integration.environments_closing", "300")
    assert run.returncode == 0, run.stderr
    before, after = ([int(word) for word in line.split()] for line in run.stdout.splitlines())
    size, resident, mappings, descriptors, threads = (
        b - a for a, b in zip(before, after, strict=True)
    )

    # KiB. One environment has 4 GiB of address space, and glibc reserves 64 MiB for a thread.
    assert size < 2 << 20
    assert resident < 16 << 10
    assert mappings < 40
    assert descriptors == 0
    assert threads <= 0
