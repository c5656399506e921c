"""
One fuzz target whose inputs are bytes, guided by the coverage of our Python: needs Atheris.

    python -m tests.fuzz.with_atheris TARGET [OPTION OF LIBFUZZER ...] [FOLDER ...]
"""

from __future__ import annotations

import logging
import sys

import atheris

with atheris.instrument_imports(include=["arkml"], enable_loader_override=False):
    from tests.fuzz.checks import (
        check_container,
        check_model,
        check_module,
        check_side_channel,
    )

CHECKS = {
    "modules": check_module,
    "models": check_model,
    "containers": check_container,
    "side_channels": check_side_channel,
}


def main() -> None:
    logging.disable(logging.CRITICAL)
    check = CHECKS[sys.argv.pop(1)]
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
