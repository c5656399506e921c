"""The files about a guest that programs of players need: spec file, messages and settings."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Final

from arkml.base.output_files import make_directory, write_file
from arkml.errors import UsageError
from arkml.guest_trials.probe import GuestClass
from arkml.trials.generate import generate
from arkml.trials.wire import guest_pb2

SPEC: Final = "cogment.yaml"
MESSAGES: Final = "guest.proto"
PYTHON: Final = "python"
JAVASCRIPT: Final = "javascript"

_NOTICE: Final = "# Written by `arkml trials spec`. Do not edit."

_MODULE: Final = f'''\
"""The messages of trials that guests play. A process can define them once: arkml has them."""

{_NOTICE}

from arkml.trials.wire.guest_pb2 import {{names}}

__all__ = [{{quoted}}]
'''


def write_spec(guest: str, classes: Sequence[GuestClass], folder: Path) -> list[Path]:
    """
    Write the spec file of a guest and the files generated from it, and return their paths.

    Generators of Cogment's SDKs read `cogment.yaml` and `guest.proto`. `python/cog_settings.py`
    comes with the modules that it imports, and `javascript/CogSettings.js` with the SDK. A folder
    that this function wrote earlier is written again; in any other folder no file is replaced.

    Args:
        guest: The name of the guest's module.
        classes: The classes of actors.
        folder: The folder to write.

    Raises:
        UsageError: Other files are in the way, or the folder cannot be written.
        TrialError: The files cannot be generated.

    """
    with tempfile.TemporaryDirectory() as scratch:
        contents = _generated(guest, classes, Path(scratch))
    _require_free(folder, contents)
    make_directory("-o", folder)
    paths = []
    for name, content in contents.items():
        path = folder / name
        make_directory("-o", path.parent)
        write_file(path, content)
        paths.append(path)
    return paths


def spec_text(guest: str, classes: Sequence[GuestClass]) -> str:
    """Return the text of the spec file of a guest."""
    lines = [
        _NOTICE,
        f"# Guest: {_shown(guest)}.",
        "import:",
        f"  proto: [{MESSAGES}]",
        "trial:",
        f"  config_type: {guest_pb2.GuestConfig.DESCRIPTOR.full_name}",
        "actor_classes:",
    ]
    for one in classes:
        lines += _class_lines(one)
    return "".join(f"{line}\n" for line in lines)


def _class_lines(one: GuestClass) -> list[str]:
    actions = one.behavior.spec.actions
    parts = [f"{_shown(part.name)} {list(part.shape)}" for part in one.behavior.spec.observations]
    names = ", ".join(map(_shown, actions.names))
    return [
        f"  # Behavior {_shown(one.behavior.name)}, actors {one.actor(0)} to"
        f" {one.actor(one.slots - 1)}.",
        f"  # values: {', '.join(parts)}; continuous: {actions.continuous};"
        f" choices: {list(actions.branches)}{f'; actions: {names}' if names else ''}",
        f"  - name: {one.name}",
        f"    action: {{space: {guest_pb2.Action.DESCRIPTOR.full_name}}}",
        f"    observation: {{space: {guest_pb2.Observation.DESCRIPTOR.full_name}}}",
    ]


def _shown(text: str) -> str:
    """Return a name that came with a guest in one line of ASCII, since a comment ends with it."""
    return json.dumps(text)


def _generated(guest: str, classes: Sequence[GuestClass], scratch: Path) -> dict[str, bytes]:
    """Return the content of all files by their path in the folder."""
    messages = files("arkml.trials.wire") / MESSAGES
    (scratch / SPEC).write_text(spec_text(guest, classes), encoding="utf-8")
    (scratch / MESSAGES).write_bytes(messages.read_bytes())
    generate(scratch / SPEC, python=scratch / PYTHON, javascript=scratch / JAVASCRIPT)
    (scratch / PYTHON / "guest_pb2.py").write_text(_python_module(), encoding="utf-8")
    (scratch / PYTHON / "guest_pb2.pyi").unlink()
    return {
        path.relative_to(scratch).as_posix(): path.read_bytes()
        for path in sorted(scratch.rglob("*"))
        if path.is_file()
    }


def _python_module() -> str:
    names = sorted(guest_pb2.DESCRIPTOR.message_types_by_name)
    quoted = ", ".join(f'"{name}"' for name in names)
    return _MODULE.format(names=", ".join(names), quoted=quoted)


def _require_free(folder: Path, contents: dict[str, bytes]) -> None:
    """Raise UsageError if a file would be replaced that was not written by this before."""
    spec = folder / SPEC
    try:
        if spec.is_file() and spec.read_bytes().startswith(_NOTICE.encode()):
            return
        there = [path for path in map(folder.joinpath, contents) if path.exists()]
    except OSError as error:
        raise UsageError(f"{folder} cannot be read: {error.strerror}") from None
    if there:
        raise UsageError(
            f"{there[0]} is there already, and `arkml trials spec` did not write {folder}: name"
            " another directory with -o"
        )
