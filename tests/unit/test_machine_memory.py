"""Memory that the machine refuses: the sentence says which limit it is, and the way out."""

import resource
import subprocess
import sys

import pytest
import wasmtime

from arkml.errors import InstanceLimitExceeded
from arkml.runtime.mappings import explained, refused_by_the_machine

EXECUTABLE = (
    "unable to make memory executable\n\nCaused by:\n    0: failed to make memory executable\n"
    "    1: Permission denied (os error 13)"
)
FULL = "mmap failed to reserve 0x104000000 bytes\n\nCaused by:\n    Cannot allocate memory (os error 12)"  # noqa: E501
LIMITED = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
from arkml import Host
Host()
"""


def test_memory_that_cannot_become_executable_is_named_with_the_way_out():
    with pytest.raises(InstanceLimitExceeded, match="without MemoryDenyWriteExecute="), explained():
        raise wasmtime.WasmtimeError(EXECUTABLE)


@pytest.mark.parametrize(
    ("limit", "way"), [(resource.RLIM_INFINITY, "raise vm.max_map_count"), (7 << 30, "ulimit -v")]
)
def test_memory_that_cannot_be_reserved_is_a_limit_of_the_process_or_of_the_machine(
    monkeypatch, limit, way
):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))

    assert way in refused_by_the_machine(wasmtime.WasmtimeError(FULL))


def test_other_errors_of_wasmtime_are_not_of_the_machine():
    with pytest.raises(wasmtime.WasmtimeError), explained():
        raise wasmtime.WasmtimeError("unknown import")


def test_a_host_in_a_limited_address_space_is_refused_in_a_sentence():
    done = subprocess.run(
        [sys.executable, "-c", LIMITED], capture_output=True, text=True, check=False
    )

    assert (
        "InstanceLimitExceeded: no guest can run in this process: its address space" in done.stderr
    )
