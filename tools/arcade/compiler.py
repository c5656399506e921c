"""clang with what it needs for guests with a C library."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools.arcade import trial
from tools.arcade.sources import ArcadeError

ROOT = Path(__file__).parents[2]
GAMES = ROOT / "examples" / "arcade"
HEADERS = ROOT / "guest_abi/c"

NUMBERS = ("-O2", "-ffp-contract=off", "-DNDEBUG")
"""What decides about the numbers of a game, here and in a native build."""

_FLAGS = (
    "--target=wasm32-wasi", "-mexec-model=reactor", *NUMBERS, "-msimd128", "-mbulk-memory", "-w",
    "-Wl,-z,stack-size=1048576", "-Wl,--strip-all",
)  # fmt: skip
_API = "-Wl,--export=ARK_API_ML"
_PLUS = ("--driver-mode=g++", "-std=c++17", "-fno-exceptions", "-fno-rtti", "-nostdlib++")

_INCLUDED = re.compile(r'^#include "(\w+\.(?:c|cpp))"$', re.MULTILINE)
"""A game that is another one with other parameters."""

_PACKAGES = {
    "libclang_rt": "libclang-rt-dev-wasm32",
    "crt1": "wasi-libc",
    "file not found": "wasi-libc",
    "-lc": "wasi-libc",
    "wasm-ld": "lld",
}
"""The Debian package for a word of the error that its absence causes, the surest first."""

_PROGRAM = "#include <stdlib.h>\nlong long product(long long a) { return a * rand() / 3; }\n"


def check() -> str:
    """
    Return the version of clang.

    Raises:
        ArcadeError: It cannot build guests; names the Debian package that is missing.

    """
    if shutil.which("clang") is None:
        raise ArcadeError("clang is missing: apt install clang")
    with tempfile.TemporaryDirectory() as room:
        source = Path(room, "program.c")
        source.write_text(_PROGRAM)
        error = _run([*_FLAGS, "-o", f"{room}/program.wasm", str(source), "-lm"])
    if error:
        package = next((package for word, package in _PACKAGES.items() if word in error), None)
        if package is None:
            raise ArcadeError(f"clang builds no guests: {error.splitlines()[0]}")
        raise ArcadeError(f"clang misses {package}: apt install {package}")
    return subprocess.run(
        ["clang", "--version"], capture_output=True, text=True, check=True
    ).stdout.splitlines()[0]


def is_plus(source: Path) -> bool:
    """Return whether a game is one of Gymnasium's or RLtools' in C++, and not PufferLib's in C."""
    return source.suffix == ".cpp"


def needs_archive(source: Path) -> bool:
    """Return whether a game is built with the sources of others, and not from its rules alone."""
    return not any('#include "gymnasium/numbers.h"' in text for text in _texts(source))


def _texts(source: Path) -> list[str]:
    """Return the text of a game, and that of the one that it includes, if any."""
    text = source.read_text(encoding="utf-8")
    included = [GAMES / name for name in _INCLUDED.findall(text)]
    return [text, *(path.read_text(encoding="utf-8") for path in included)]


def include_flags(source: Path, sources: Path) -> list[str]:
    """Return the folders in which a game finds its headers."""
    if not needs_archive(source):
        return [f"-I{folder}" for folder in (HEADERS, GAMES)]
    if is_plus(source):
        rltools = sources / "rltools-2.2.1" / "rltools" / "external" / "rl_tools" / "include"
        folders = [HEADERS, GAMES, GAMES / "box2d", sources / "box2d-py-2.3.8", rltools]
        return [f"-I{folder}" for folder in folders]
    archive = sources / "pufferlib-3.0.0"
    games = archive / "pufferlib" / "ocean"
    folders = [
        HEADERS, GAMES, games, games / source.stem, archive / "pufferlib" / "resources",
        archive / "raylib-5.5_linux_amd64" / "include",
    ]  # fmt: skip
    return [f"-I{folder}" for folder in folders]


def key(source: Path, versions: str) -> str:
    """Return a hash of all that decides about a guest and its facts."""
    headers = sorted([*GAMES.rglob("*.h"), *HEADERS.glob("*.h")])
    texts = [
        versions,
        Path(trial.__file__).read_text(),
        *_FLAGS,
        *_PLUS,
        *_texts(source),
        *(path.read_text(encoding="utf-8") for path in headers),
    ]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def build(source: Path, sources: Path, to: Path) -> str:
    """Build a guest. Returns the first error of the compiler, or nothing."""
    plus = _PLUS if is_plus(source) else ()
    flags = [*_FLAGS, *plus, _API, *include_flags(source, sources)]
    error = _run([*flags, "-o", str(to), str(source), "-lm"])
    if plus and "file not found" in error:
        return "clang misses the library of C++: apt install libc++-14-dev-wasm32"
    lines = [line for line in error.splitlines() if "error" in line] or error.splitlines()
    return lines[0] if lines else ""


def _run(arguments: Sequence[str]) -> str:
    """Run clang; return what it said if it failed."""
    found = subprocess.run(
        ["clang", *arguments], capture_output=True, text=True, errors="replace", check=False
    )
    return "" if found.returncode == 0 else found.stderr or f"status {found.returncode}"
