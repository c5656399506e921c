"""The cart-poles of fixtures/guests as a native library: the floor of what stepping them costs."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from tests.benchmarks import actions
from tests.benchmarks.companion import ROOT
from tests.benchmarks.stepping import Call

SOURCE = Path(__file__).with_name("native_cartpole.c")
_EXPORTS = "{ global: native_*; local: *; };"  # the rest wants a host
_FLAGS = (
    "-O3", "-shared", "-fPIC", "-w", "-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections",
)  # fmt: skip


def is_possible() -> bool:
    """Whether clang is there to compile it."""
    return shutil.which("clang") is not None


def cart_poles(stack: ExitStack, agents: int) -> Call:
    """A step of the guest's own source, without a host, into arrays that stay the same."""
    folder = Path(stack.enter_context(TemporaryDirectory()))
    library = _compiled(folder)
    arrays = (
        np.zeros((agents, 4), np.float32), np.zeros(agents, np.float32),
        np.zeros(agents, bool), np.zeros(agents, bool),
    )  # fmt: skip
    places = [ctypes.c_void_p(array.ctypes.data) for array in arrays]
    following = actions.ours("cart-pole", agents)
    library.native_reset(agents, 1)

    def step() -> None:
        values = next(following)
        library.native_step(ctypes.c_void_p(values.ctypes.data), *places)
        assert arrays  # kept as long as the call

    return step


def _compiled(folder: Path) -> ctypes.CDLL:
    (folder / "exports").write_text(_EXPORTS)
    path = folder / "cartpole.so"
    subprocess.run(
        [
            "clang", *_FLAGS, f"-Wl,--version-script={folder / 'exports'}",
            "-I", ROOT / "guest_abi/c", "-o", path, SOURCE, "-lm",
        ],
        check=True,
    )  # fmt: skip
    return ctypes.CDLL(str(path))
