"""Code generation for Cogment's SDKs from the spec file of a project."""

from __future__ import annotations

from pathlib import Path

from arkml.trials.core.error import TrialError
from arkml.trials.generate.javascript_settings import javascript_files
from arkml.trials.generate.message_types import compile_messages
from arkml.trials.generate.python_settings import python_files
from arkml.trials.generate.spec_file import read_spec

__all__ = ["generate"]


def generate(
    spec: Path, *, python: Path | None = None, javascript: Path | None = None
) -> list[Path]:
    """
    Write the modules that SDKs need for a project.

    Args:
        spec: Spec file, `cogment.yaml`.
        python: Folder for `cog_settings.py` and the message modules (`_pb2.py`); None to skip
            Python.
        javascript: Folder for `CogSettings.js`, the modules that it imports, and the SDK in
            `cogment/`; None to skip JavaScript. Missing folders are created.

    Returns:
        The paths of all written files.

    Raises:
        TrialError: The spec file or a .proto file is missing or invalid, in which case nothing is
            written; or a file cannot be written.

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
