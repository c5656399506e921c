"""A folder that trainers launch as a player, like a Unity build."""

from __future__ import annotations

import hashlib
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from arkml.base.files import read_file
from arkml.errors import UsageError

SPEC = "spec.json"

_SCRIPT = """#!/bin/sh
# A player for ML-Agents. It runs by the arkml of the Python that ARKML_PYTHON names, of the Python
# that wrote it, or on the PATH.
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd) || exit 1
set -- player "$here"/{module} {words} "$@"
for python in "$ARKML_PYTHON" {python}; do
  if [ -n "$python" ] && [ -x "$python" ]; then exec "$python" -m arkml "$@"; fi
done
if command -v arkml >/dev/null; then exec arkml "$@"; fi
echo "this player needs arkml: pip install 'arkml[unity]'" >&2
exit 127
"""


def write_bundle(
    folder: Path, module: Path, words: Sequence[str], spec: Path | None = None
) -> Path:
    """
    Write a player of a module into a folder, and return its executable, for Linux.

    An archive of the folder can be listed in a registry.

    Args:
        folder: Folder to write.
        module: The guest's module.
        words: Options of `arkml player`.
        spec: File for its option --spec, or None.

    Raises:
        UsageError: A file cannot be read, or the folder cannot be written.

    """
    program = folder / f"{module.stem}.x86_64"
    copy = folder / f"{module.stem}.wasm"
    try:
        data = read_file(module)
        folder.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(data)
        if spec is not None:
            (folder / SPEC).write_bytes(read_file(spec))
        given = shlex.join(words) + (f' --spec="$here"/{SPEC}' if spec is not None else "")
        program.write_text(
            _SCRIPT.format(
                module=shlex.quote(copy.name), words=given, python=shlex.quote(sys.executable)
            )
        )
        program.chmod(0o755)
        about = {
            "guest": copy.name,
            "sha256": hashlib.sha256(data).hexdigest(),
            "options": list(words),
        }
        (folder / "arkml.json").write_text(json.dumps(about, indent=2) + "\n")
    except OSError as error:
        raise UsageError(f"a player cannot be written to {folder}: {error.strerror}") from None
    return program
