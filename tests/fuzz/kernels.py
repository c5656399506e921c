"""Random models compiled to WebAssembly: refused in a sentence, or run."""

from __future__ import annotations

import numpy as np
from tests.unit.kernel_runs import WASM, answers, random_feeds

from arkml.errors import AbiError

_NAN = 0x7FC0_0000


def check_kernel(data: bytes) -> None:
    """Run a model twice, if it is compiled: the bits are equal, and NaN has one form."""
    try:
        WASM.onnx(data).load(None)
    except AbiError:
        return
    feeds = random_feeds(data, 2)
    found, again = answers(WASM, data, feeds), answers(WASM, data, feeds)
    for name, ours in found.items():
        bits = ours.view(np.uint32)
        assert np.array_equal(bits, again[name].view(np.uint32)), name
        assert (bits[np.isnan(ours)] == _NAN).all(), name
