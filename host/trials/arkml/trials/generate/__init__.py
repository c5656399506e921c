"""The files that users of Cogment's SDKs need of a project, written from its spec file."""

from __future__ import annotations

from pathlib import Path

from arkml.trials.core.error import TrialError
from arkml.trials.generate.javascript_settings import javascript_files
from arkml.trials.generate.messages import compile_messages
from arkml.trials.generate.python_settings import python_files
from arkml.trials.generate.spec_file import read_spec

__all__ = ["generate"]


def generate(
    spec: Path, *, python: Path | None = None, javascript: Path | None = None
) -> list[Path]:
    """
    Write what SDKs need of the project of a spec file, cogment.yaml.

    Into the folder `python` go `cog_settings.py` and the modules of the messages (`_pb2.py`), into
    `javascript` the module `CogSettings.js`, those that it imports, and the SDK in `cogment/`. Both
    are made if they are missing; without one of them, that language is left out. Returns the paths
    of all files.

    Raises TrialError if the spec file or a .proto file is missing or wrong, before anything is
    written, and if a file cannot be written.
    """
    read = read_spec(spec)
    compiled = compile_messages(spec.parent, read.protos)
    compiled.named(read)
    texts: dict[Path, str] = {}
    if python is not None:
        texts |= {python / name: text for name, text in python_files(read, compiled).items()}
    if javascript is not None:
        modules = javascript_files(read, compiled)
        texts |= {javascript / name: text for name, text in modules.items()}
    for path, text in texts.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise TrialError(f"cannot write {path}: {error.strerror}") from error
    return list(texts)
