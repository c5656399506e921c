"""
Build hook that puts the guest SDK into the package, and compiles the native library into it.

The SDK is the folder `guest_abi` of the repository, or of a source distribution.

It takes the C compiler of the system if that can compile the library, else the one of the package
`ziglang`, which it then asks for as a build requirement. `ARKML_PLATFORM=manylinux_2_17_aarch64` in
the environment compiles for another platform, by `ziglang`. `ARKML_PURE=1` leaves the library out:
the package works without it, on one thread.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "native" / "arkml_native.c"
INTO = HERE / "arkml" / "runtime"
SDK = "guest_abi"
ZIG = "ziglang>=0.16,<0.18"
TARGETS = {
    "manylinux_2_17_x86_64": "x86_64-linux-gnu.2.17",
    "manylinux_2_17_aarch64": "aarch64-linux-gnu.2.17",
    "musllinux_1_2_x86_64": "x86_64-linux-musl",
    "macosx_11_0_x86_64": "x86_64-macos.11.0",
    "macosx_11_0_arm64": "aarch64-macos.11.0",
    "win_amd64": "x86_64-windows-gnu",
}
"""Platforms of wheels, and what zig calls them."""
FLAGS = (
    *("-std=c11", "-O2", "-fwrapv", "-fstack-protector-strong", "-fvisibility=hidden"),
    *("-Wall", "-Wextra", "-Wpedantic", "-Werror=implicit-function-declaration"),
)


class NativeLibrary(BuildHookInterface[Any]):
    """Hatch's hook; see https://hatch.pypa.io/latest/plugins/build-hook/custom/."""

    _made: tempfile.TemporaryDirectory[str] | None = None

    def dependencies(self) -> list[str]:
        """Return the requirement of a compiler, if the system has none."""
        if _is_pure() or (not _platform() and _system_compiler() is not None):
            return []
        return [ZIG]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the library, into the wheel or, if it is editable, beside the sources."""
        if version != "editable":  # which finds it in the repository
            folders = [HERE / SDK, HERE.parents[1] / SDK]
            sdk = next(folder for folder in folders if folder.is_dir())
            build_data["force_include"][str(sdk)] = f"arkml/{SDK}"
        platform = _platform()
        compiler = None if _is_pure() else _compiler(platform)
        if compiler is None:
            self.app.display_warning("no native library is built: guests run on one thread")
            return
        name = _file_name(platform)
        self._made = tempfile.TemporaryDirectory()  # to the end of the build
        library = Path(self._made.name) / name
        _compile(compiler, library, platform)
        build_data["pure_python"] = False
        tag = platform or sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{tag}"
        if version == "editable":
            beside = INTO / f".{name}"
            shutil.copy2(library, beside)
            beside.replace(INTO / name)  # at once: programs may be loading it
        else:
            build_data["force_include"][str(library)] = f"arkml/runtime/{name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove the compiled library, which is in the wheel."""
        if self._made is not None:
            self._made.cleanup()


def _is_pure() -> bool:
    return os.environ.get("ARKML_PURE", "0") not in {"", "0"}


def _platform() -> str:
    """Return the platform that is asked for, empty for this one. Raises ValueError."""
    platform = os.environ.get("ARKML_PLATFORM", "")
    if platform and platform not in TARGETS:
        raise ValueError(f"ARKML_PLATFORM={platform!r} is none of {', '.join(TARGETS)}")
    return platform


def _file_name(platform: str) -> str:
    """Return the name that `arkml.runtime.native` looks for."""
    if platform.startswith("win") or (not platform and sys.platform == "win32"):
        return "arkml_native.dll"
    if platform.startswith("macosx") or (not platform and sys.platform == "darwin"):
        return "libarkml_native.dylib"
    return "libarkml_native.so"


def _compiler(platform: str) -> list[str] | None:
    """Return the command of a C compiler for the platform, None if there is none."""
    system = None if platform else _system_compiler()
    if system is not None:
        return system
    try:
        import ziglang  # type: ignore[import-not-found]  # noqa: F401
    except ImportError:
        return None
    target = ["-target", TARGETS[platform]] if platform else []
    return [sys.executable, "-m", "ziglang", "cc", *target]


def _system_compiler() -> list[str] | None:
    """Return the first compiler of the system that compiles the library, None if none does."""
    for command in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        words = shlex.split(command)
        if not words or shutil.which(words[0]) is None:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                _compile(words, Path(folder) / _file_name(""), "")
            except (OSError, subprocess.CalledProcessError):
                continue
        return words
    return None


def _compile(compiler: list[str], library: Path, platform: str) -> None:
    """Compile the library. Raises CalledProcessError with the compiler's words."""
    threads = [] if library.suffix == ".dll" else ["-pthread"]
    bare = ["-s"] if platform else []  # no symbols for a debugger in a wheel
    command = [*compiler, *FLAGS, *threads, *bare, "-shared", "-fPIC", "-o", str(library)]
    subprocess.run([*command, str(SOURCE)], check=True, capture_output=True, text=True)
