"""The games above Box2D, compiled in one command each: guests, and libraries of this machine."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
GAMES = ROOT / "examples" / "arcade"
NAMES = (
    "bipedal_walker",
    "bipedal_walker_hardcore",
    "lunar_lander",
    "lunar_lander_continuous",
)

_NUMBERS = ("-std=c++17", "-O2", "-ffp-contract=off", "-DNDEBUG", "-w")
_GUEST = (
    "--target=wasm32-wasi", "-mexec-model=reactor", "-msimd128", "-mbulk-memory",
    "-fno-exceptions", "-fno-rtti", "-Wl,--export=ARK_API_ML", "-Wl,-z,stack-size=1048576",
    "-Wl,--strip-all",
)  # fmt: skip


def build_guest(name: str, archive: Path, to: Path) -> None:
    """Build a guest from the unpacked archive of box2d-py; needs libc++-14-dev-wasm32."""
    headers = ROOT / "guest_abi" / "c"
    _compile([*_GUEST, f"-I{headers}"], archive, GAMES / f"{name}.cpp", to)


def build_native(name: str, host: Path, archive: Path, to: Path) -> None:
    """Build a library of a file that includes SOURCE, the game."""
    flags = ["-shared", "-fPIC", f'-DSOURCE="{name}.cpp"']
    _compile(flags, archive, host, to)


def _compile(flags: list[str], archive: Path, source: Path, to: Path) -> None:
    folders = [f"-I{folder}" for folder in (GAMES, GAMES / "box2d", archive)]
    command = ["clang++", *_NUMBERS, *flags, *folders, "-o", str(to), str(source)]
    subprocess.run(command, check=True)
