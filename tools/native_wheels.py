"""
The wheels of `arkml` for other platforms than this one, and what is in them.

    python -m tools.native_wheels PYTHON FOLDER

builds one for each platform, with the hatchling and the ziglang of PYTHON, and checks the library
in it: its format and processor, its functions, and the glibc that it needs. Only the wheel of this
platform is ever run, by `make test-wheels`; the others are as good as these checks.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from tools.houses import ROOT

HOUSE = ROOT / "host" / "arkml"
FUNCTIONS = (
    b"arkml_build", b"arkml_round_size", b"arkml_suspend", b"arkml_end_turn", b"arkml_run",
    b"arkml_begin", b"arkml_delete", b"arkml_workers", b"arkml_end_workers", b"arkml_after_fork",
)  # fmt: skip
NEWEST_GLIBC = (2, 17)


@dataclass(frozen=True, slots=True)
class Platform:
    """The tag of a wheel, and what is in the first bytes of its library."""

    tag: str
    start: bytes
    machine: tuple[int, bytes]
    """Where the library names its processor, and how."""


ELF, MACHO, PE = b"\x7fELF\x02\x01", b"\xcf\xfa\xed\xfe", b"MZ"
PLATFORMS = (
    Platform("manylinux_2_17_x86_64", ELF, (18, b"\x3e\x00")),
    Platform("manylinux_2_17_aarch64", ELF, (18, b"\xb7\x00")),
    Platform("musllinux_1_2_x86_64", ELF, (18, b"\x3e\x00")),
    Platform("macosx_11_0_x86_64", MACHO, (4, b"\x07\x00\x00\x01")),
    Platform("macosx_11_0_arm64", MACHO, (4, b"\x0c\x00\x00\x01")),
    Platform("win_amd64", PE, (0, b"MZ")),
)


def faults(platform: Platform, wheel: Path) -> list[str]:
    """Return a sentence for each thing that is wrong with the library in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if "arkml_native" in Path(name).name]
        if len(names) != 1:
            return [f"{wheel.name} has {len(names)} native libraries: {', '.join(names)}"]
        library = archive.read(names[0])
    found = []
    offset, machine = platform.machine
    if not library.startswith(platform.start) or not library.startswith(machine, offset):
        found.append(f"{names[0]} of {wheel.name} is not for {platform.tag}")
    missing = [name.decode() for name in FUNCTIONS if name not in library]
    if missing:
        found.append(f"{names[0]} of {wheel.name} lacks {', '.join(missing)}")
    versions = {
        (int(major), int(minor)) for major, minor in re.findall(rb"GLIBC_(\d+)\.(\d+)", library)
    }
    if versions and ("musl" in platform.tag or max(versions) > NEWEST_GLIBC):
        found.append(f"{names[0]} of {wheel.name} needs glibc {max(versions)}")
    return found


def build(python: str, folder: Path) -> list[str]:
    """Build the wheels, and return what is wrong with them. Raises CalledProcessError."""
    found: list[str] = []
    for platform in PLATFORMS:
        environment = os.environ | {"ARKML_PLATFORM": platform.tag}
        subprocess.run(
            [python, "-m", "hatchling", "build", "-t", "wheel", "-d", folder.resolve()],
            cwd=HOUSE, env=environment, check=True, capture_output=True,
        )  # fmt: skip
        (wheel,) = folder.glob(f"arkml-*-{platform.tag}.whl")
        found += faults(platform, wheel)
        sys.stdout.write(f"{wheel}\n")
    return found


if __name__ == "__main__":
    sys.exit("\n".join(build(sys.argv[1], Path(sys.argv[2]))) or None)
