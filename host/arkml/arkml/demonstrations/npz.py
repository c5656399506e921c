"""Demonstrations as NumPy's `.npz` files: plain arrays and a JSON text, and never pickles."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from arkml.base.files import open_file
from arkml.base.output_files import write_file
from arkml.base.short_reprs import cut_repr, cut_text
from arkml.demonstrations.dataset import (
    MOST_BYTES,
    DemonstrationSet,
    checked,
    outside,
    require_choices,
)
from arkml.demonstrations.npz_arrays import DAMAGE, archived_array, open_archive
from arkml.errors import UsageError

VERSION = 1
"""The version of the format, which `about` holds."""

_FORMAT = "arkml demonstrations"
_KINDS = {"agent": "ui", "step": "ui", "state": "ui", "reward": "fui", "features": "fui"}
_KINDS["action"] = "fui"
_MOST_TEXT = 1 << 16  # characters


def write_npz(path: Path, demonstrations: DemonstrationSet) -> None:
    """Write demonstrations to an `.npz` file, in one step. Raises UsageError."""
    rows = demonstrations.columns
    about = {
        "format": _FORMAT,
        "version": VERSION,
        "guest": demonstrations.guest,
        "sha256": demonstrations.sha256,
        "features": demonstrations.features,
        "actions": demonstrations.actions,
        "branches": demonstrations.branches,  # None where they are not known
    }
    file = io.BytesIO()
    np.savez_compressed(
        file,
        about=np.array(json.dumps(about)),
        agent=rows.agent,
        step=rows.step,
        state=rows.state,
        reward=rows.reward,
        features=rows.features,
        action=rows.action,
    )
    write_file(path, file.getvalue())


def read_npz(path: Path) -> DemonstrationSet:
    """
    Return the demonstrations in an `.npz` file, which is not trusted.

    Each array is checked by its header before it is decompressed. Arrays with unknown names are not
    read, and `about` may be missing. Raises UsageError.
    """
    try:
        with open_file(path) as file, open_archive(file) as archive:
            columns = _columns(path, archive)
            about = _about(path, archive)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None
    except DAMAGE as error:
        raise UsageError(
            f"{path} is not an .npz file of demonstrations: {cut_text(error)}"
        ) from None
    rows, warnings = checked(str(path), columns)
    branches = _branches(path, about, rows.features.shape[1], rows.action.shape[1])
    require_choices(str(path), rows.action, branches or ())
    warnings += outside(str(path), rows.action, branches or ())
    guest, sha256 = str(about.get("guest", "")), str(about.get("sha256", ""))
    return DemonstrationSet(rows, branches, guest, sha256, warnings=tuple(warnings))


def _columns(path: Path, archive: zipfile.ZipFile) -> dict[str, npt.NDArray[Any]]:
    """Return the columns by name. Raises UsageError and the errors of a damaged file."""
    columns: dict[str, npt.NDArray[Any]] = {}
    left = MOST_BYTES
    for name, kinds in _KINDS.items():
        if f"{name}.npy" not in archive.namelist():
            raise UsageError(f"{path} has no array {name!r}: it takes {', '.join(_KINDS)}")
        array = _array(path, archive, name, kinds, left)
        left -= array.nbytes
        columns[name] = array
    return columns


def _array(
    path: Path, archive: zipfile.ZipFile, name: str, kinds: str, most: int
) -> npt.NDArray[Any]:
    """Return an array of one of the `kinds` and at most `most` bytes. Raises UsageError."""
    with archived_array(archive, name) as array:
        if array.dtype.kind not in kinds:
            raise UsageError(
                f"{name!r} of {path} is of type {cut_text(array.dtype)}: it takes plain numbers"
            )
        if array.nbytes > most:
            raise UsageError(
                f"{path} holds more than {MOST_BYTES:,} bytes of rows: split it into several files"
            )
        return array.read()


def _about(path: Path, archive: zipfile.ZipFile) -> dict[str, Any]:
    """Return the description of the rows, empty without one. Raises UsageError and ValueError."""
    if "about.npy" not in archive.namelist():
        return {}
    array = _array(path, archive, "about", "U", 4 * _MOST_TEXT)
    about = json.loads(str(array.reshape(())[()]))
    if not isinstance(about, dict) or about.get("format", _FORMAT) != _FORMAT:
        raise ValueError("'about' does not describe demonstrations")
    if about.get("version", VERSION) != VERSION:
        raise UsageError(
            f"{path} is of version {cut_repr(about['version'])}: this arkml reads version {VERSION}"
        )
    return about


def _branches(
    path: Path, about: dict[str, Any], features: int, actions: int
) -> tuple[int, ...] | None:
    """Return the branches in the description, checked. Raises UsageError."""
    for name, width in (("features", features), ("actions", actions)):
        if about.get(name, width) != width:
            raise UsageError(
                f"{path} says {cut_repr(about[name])} {name}, and its rows have {width}"
            )
    branches = about.get("branches")
    if branches is None:
        return None
    is_list = isinstance(branches, list)
    if not is_list or any(type(size) is not int or size < 1 for size in branches):
        raise UsageError(
            f"{path} says branches of {cut_repr(branches)} choices: it takes a list of counts"
        )
    return tuple(branches)
