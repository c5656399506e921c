"""Finding the executable of a Unity player, and starting it."""

from __future__ import annotations

import glob
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from arkml.base.loggers import SafeLogger
from arkml.envs.llapi.exception import UnityEnvironmentException

logger = SafeLogger(__name__)

_EXTENSIONS = (".app", ".exe", ".x86_64", ".x86")


def get_platform() -> str:
    """Return the operating system: linux, darwin or win32."""
    return sys.platform


def validate_environment_path(env_path: str) -> str | None:
    """
    Return the executable that `env_path` names on this platform, or None.

    The path may have a player's extension for any platform, or none.
    """
    name = env_path.strip()
    for extension in _EXTENSIONS:
        name = name.removesuffix(extension)
    candidates: Iterable[str]
    match get_platform():
        case "linux":
            candidates = _linux(name)
        case "darwin":
            candidates = _darwin(Path(name))
        case "win32":
            candidates = _windows(name)
        case _:
            candidates = ()
    return next(iter(candidates), None)


def launch_executable(file_name: str, args: Sequence[str]) -> subprocess.Popen[bytes]:
    """
    Start a player in its own session, so that Ctrl-C here does not end it.

    The player's output is shown if this package logs debug messages. Raises
    UnityEnvironmentException if the executable is missing or cannot be run.
    """
    launch_string = validate_environment_path(file_name)
    if launch_string is None:
        raise UnityEnvironmentException(
            f"Couldn't launch the {file_name} environment. "
            "Provided filename does not match any environments."
        )
    logger.debug("The launch string is %s", launch_string)
    logger.debug("Running with args %s", args)
    output = None if logger.isEnabledFor(logging.DEBUG) else subprocess.DEVNULL
    try:
        return subprocess.Popen(
            [launch_string, *args], start_new_session=True, stdout=output, stderr=output
        )
    except PermissionError as error:
        raise UnityEnvironmentException(
            "Error when trying to launch environment - make sure permissions are set correctly. "
            f'For example "chmod -R 755 {launch_string}"'
        ) from error
    except OSError as error:  # the file is not a program
        raise UnityEnvironmentException(
            f"Couldn't launch the {file_name} environment."
            f" {launch_string} is not a program: {error}"
        ) from error


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a player started here, with all processes of its session."""
    if hasattr(os, "killpg"):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            process.kill()  # the group has ended, or belongs to another user by now
    else:
        process.kill()
    process.wait()


def _linux(name: str) -> Iterable[str]:
    found = [*_existing(Path.cwd() / f"{name}.x86_64"), *_existing(Path.cwd() / f"{name}.x86")]
    path = Path(name).absolute()
    return [*found, str(path)] if path.is_file() else found


def _darwin(path: Path) -> Iterable[str]:
    programs = Path.cwd() / f"{path}.app" / "Contents" / "MacOS"
    return _existing(programs / path.name) or _within(programs, "*")


def _windows(name: str) -> Iterable[str]:
    players = _existing(Path.cwd() / f"{name}.exe") or _within(Path.cwd() / name, "*.exe")
    return [path for path in players if not Path(path).name.startswith("UnityCrashHandler")]


def _existing(path: Path) -> list[str]:
    """Return a list with the path if it exists. Tests of ML-Agents replace `glob.glob`."""
    return glob.glob(glob.escape(str(path)))  # noqa: PTH207


def _within(folder: Path, pattern: str) -> list[str]:
    """Return the matching paths in a folder, in order."""
    return sorted(glob.glob(f"{glob.escape(str(folder))}/{pattern}"))  # noqa: PTH207
