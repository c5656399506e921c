"""
Demonstrations as Minari datasets: directories with an HDF5 file.

Minari's own package is not needed, only h5py. The layout follows Minari 0.5: one group of
`data/main_data.hdf5` for each episode, and `data/metadata.json` beside it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from arkml.abi.codes import EpisodeState
from arkml.base.files import open_inside
from arkml.base.output_files import make_directory, write_file
from arkml.base.short_reprs import cut_repr, cut_text
from arkml.demonstrations.dataset import (
    MOST_BYTES,
    DemonstrationSet,
    checked,
    outside,
    row_columns,
)
from arkml.demonstrations.hdf5_chunks import check_chunks
from arkml.errors import UsageError
from arkml.hive.protocol.rows import RowColumns

_DATA, _ROWS, _METADATA = "data", "main_data.hdf5", "metadata.json"
_MINARI = "0.5.4"
_MOST_TEXT = 16 << 20
_NUMBERS = "fiub"
_EPISODE = re.compile(r"episode_(0|[1-9][0-9]{0,17})")  # its number is that of an agent

_INITIAL, _RUNNING, _TERMINAL, _INTERRUPTED = (
    EpisodeState.INITIAL,
    EpisodeState.RUNNING,
    EpisodeState.TERMINAL,
    EpisodeState.INTERRUPTED,
)


def is_dataset(path: Path) -> bool:
    """Return whether a directory holds a Minari dataset."""
    return (path / _folder_of(path) / _METADATA).is_file()


def require_h5py() -> None:
    """Raise UsageError if h5py is not installed."""
    if find_spec("h5py") is None:
        raise UsageError("datasets of Minari need h5py: pip install 'arkml[minari]'")


def read_minari(path: Path) -> DemonstrationSet:
    """
    Return the demonstrations in a Minari dataset, which is not trusted.

    Observations and actions are arrays of numbers; each is checked before it is read. In Minari,
    rewards and ends belong to a step; here they belong to the row after the step, so that 200
    steps, for example, become 201 rows. Raises UsageError.
    """
    require_h5py()
    import h5py

    below = _folder_of(path)
    layout = _metadata(path, f"{below}{_METADATA}").get("data_format", "hdf5")
    if layout != "hdf5":
        raise UsageError(
            f"{path} is stored as {cut_repr(layout)}: it takes a dataset of format 'hdf5'"
        )
    try:
        with open_inside(path, f"{below}{_ROWS}") as plain, h5py.File(plain, "r") as file:
            episodes = list(_episodes(path, file))
    except OSError as error:
        reason = error.strerror or cut_text(error)
        raise UsageError(f"{path / below / _ROWS} cannot be read: {reason}") from None
    except (KeyError, ValueError, RuntimeError, TypeError, OverflowError) as error:
        raise UsageError(f"{path} is not a dataset of Minari: {cut_text(error)}") from None
    if not episodes:
        raise UsageError(f"{path} has no episodes")
    columns = {name: _joined(path, name, episodes) for name in episodes[0]}
    rows, warnings = checked(str(path), columns)
    warnings += outside(str(path), rows.action, ())
    return DemonstrationSet(rows, warnings=tuple(warnings))


def write_minari(path: Path, demonstrations: DemonstrationSet) -> None:
    """
    Write a Minari dataset; an episode that has no end in the rows is truncated at its last row.

    Raises UsageError, also if the dataset exists already.
    """
    require_h5py()
    import h5py

    folder = path / _DATA
    if folder.exists():
        raise UsageError(f"{path} holds a dataset already: name another one to write")
    make_directory("the dataset", folder)
    total = 0
    count = 0
    try:
        # In the order of play: by name, episode_10 would come before episode_2.
        with h5py.File(folder / _ROWS, "w", track_order=True) as file:
            for rows in _split(demonstrations.columns):
                group = file.create_group(f"episode_{count}")
                _write_episode(group, rows, _actions(demonstrations, rows.action[:-1]), count)
                total += len(rows) - 1
                count += 1
    except OSError as error:
        raise UsageError(f"{folder / _ROWS} cannot be written: {error}") from None
    size = (folder / _ROWS).stat().st_size
    metadata = _description(path, demonstrations, count, total, size)
    write_file(folder / _METADATA, (json.dumps(metadata, indent=2) + "\n").encode())


def _folder_of(path: Path) -> str:
    """Return the path to the files: users name their folder, or the one above, as in Minari."""
    return "" if (path / _METADATA).is_file() else f"{_DATA}/"


def _metadata(folder: Path, name: str) -> dict[str, Any]:
    path = folder / name
    try:
        with open_inside(folder, name) as file:
            text = file.read(_MOST_TEXT + 1)
        if len(text) > _MOST_TEXT:
            raise UsageError(f"{path} is larger than {_MOST_TEXT:,} bytes")
        values = json.loads(text)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise UsageError(f"{path} does not describe a dataset of Minari")
    return values


def _episodes(path: Path, file: Any) -> Iterator[dict[str, npt.NDArray[Any]]]:
    """Yield the columns of each episode that has a step. Raises the errors of h5py."""
    import h5py

    left = MOST_BYTES
    numbers = (match[1] for name in file if (match := _EPISODE.fullmatch(name)))
    for number in sorted(map(int, numbers)):
        name = f"episode_{number}"
        if not isinstance(file.get(name, getlink=True), h5py.HardLink):
            raise UsageError(f"{name!r} of {path} is a link to somewhere else")
        group = file[name]
        if not isinstance(group, h5py.Group):
            raise UsageError(f"{name!r} of {path} is not a group of arrays")
        arrays = {}
        for name in ("observations", "actions", "rewards", "terminations", "truncations"):
            arrays[name] = _array(f"episode {number} of {path}", group, name, left)
            left -= arrays[name].nbytes
        if len(arrays["rewards"]):
            yield _columns(f"episode {number} of {path}", number, **arrays)


def _array(source: str, group: Any, name: str, most: int) -> npt.NDArray[Any]:
    """Return an array that lies in the file itself. Raises UsageError and the errors of h5py."""
    import h5py

    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        raise UsageError(f"{name!r} of {source} is a link to somewhere else")
    array = group[name]
    if not isinstance(array, h5py.Dataset):
        raise UsageError(f"{name!r} of {source} is a structure: it takes an array of numbers")
    if array.external is not None or array.is_virtual:
        raise UsageError(f"{name!r} of {source} lies in another file")
    if array.dtype.kind not in _NUMBERS or not array.ndim:
        raise UsageError(
            f"{name!r} of {source} is of type {cut_text(array.dtype)}: it takes numbers"
        )
    if array.size * array.dtype.itemsize > most:
        raise UsageError(f"{source} and those before it hold more than {MOST_BYTES:,} bytes")
    check_chunks(f"{name!r} of {source}", array, MOST_BYTES)
    data: npt.NDArray[Any] = array[()]
    return data


def _columns(
    source: str,
    number: int,
    observations: npt.NDArray[Any],
    actions: npt.NDArray[Any],
    rewards: npt.NDArray[Any],
    terminations: npt.NDArray[Any],
    truncations: npt.NDArray[Any],
) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of an episode: one row more than it has steps. Raises UsageError."""
    steps = len(rewards)
    lengths = (len(observations) - 1, len(actions), len(terminations), len(truncations))
    if set(lengths) != {steps}:
        raise UsageError(
            f"{source} has {steps} rewards, {lengths[0] + 1} observations, {lengths[1]} actions and"
            f" {lengths[2]} and {lengths[3]} ends: it takes one observation more than of the others"
        )
    ended = terminations.astype(bool) | truncations.astype(bool)
    if ended[:-1].any():
        raise UsageError(f"{source} ends after step {int(ended.argmax())}, and has more steps")
    state = np.full(steps + 1, _RUNNING, np.uint8)
    state[0], state[-1] = _INITIAL, _TERMINAL if terminations[-1] else _INTERRUPTED
    action = actions.reshape(steps, -1)
    return {
        "agent": np.full(steps + 1, number, np.uint64),
        "step": np.arange(steps + 1, dtype=np.uint32),
        "state": state,
        "reward": np.concatenate([np.zeros(1), rewards.reshape(steps)]),
        "features": observations.reshape(steps + 1, -1),
        "action": np.concatenate([action, np.zeros((1, action.shape[1]), action.dtype)]),
    }


def _joined(path: Path, name: str, episodes: list[dict[str, npt.NDArray[Any]]]) -> npt.NDArray[Any]:
    with suppress(ValueError):
        return np.concatenate([episode[name] for episode in episodes])
    raise UsageError(f"the episodes of {path} differ in the shape of their {name}")


def _split(rows: RowColumns) -> Iterator[RowColumns]:
    """Yield the rows of each episode with a step, in the order in which they began."""
    order = np.argsort(rows.agent, kind="stable")
    agent, step, state = rows.agent[order], rows.step[order], rows.state[order]
    begins = np.ones(len(order), bool)
    is_next = (agent[1:] == agent[:-1]) & (step[1:] == step[:-1] + 1)
    has_ended = np.isin(state[:-1], (_TERMINAL, _INTERRUPTED))
    begins[1:] = ~is_next | has_ended
    parts = np.split(order, np.flatnonzero(begins)[1:])
    for part in sorted((part for part in parts if len(part) > 1), key=lambda part: int(part[0])):
        arrays = (rows.agent, rows.step, rows.state, rows.reward, rows.features, rows.action)
        yield row_columns(*(array[part] for array in arrays))


def _write_episode(group: Any, rows: RowColumns, actions: npt.NDArray[Any], number: int) -> None:
    steps = len(rows) - 1
    group.attrs["id"] = number
    group.attrs["total_steps"] = steps
    terminations = rows.state[1:] == _TERMINAL
    truncations = np.zeros(steps, bool)
    truncations[-1] = not terminations[-1]
    for name, array in {
        "observations": rows.features,
        "actions": actions,
        "rewards": rows.reward[1:].astype(np.float64),
        "terminations": terminations,
        "truncations": truncations,
    }.items():
        group.create_dataset(name, data=array)


def _description(
    path: Path, demonstrations: DemonstrationSet, episodes: int, steps: int, size: int
) -> dict[str, Any]:
    features = demonstrations.features
    return {
        "dataset_id": path.name,
        "total_episodes": episodes,
        "total_steps": steps,
        "data_format": "hdf5",
        "jpeg_encoding": False,
        "observation_space": _box([-math.inf] * features, [math.inf] * features),
        "action_space": _action_space(demonstrations),
        **_env_spec(demonstrations),
        "dataset_size": round(size / 1e6, 1),
        "minari_version": _MINARI,
        "arkml_guest": demonstrations.guest,
        "arkml_sha256": demonstrations.sha256,
    }


def _action_space(demonstrations: DemonstrationSet) -> str:
    """Return the space of the actions as JSON; a Box if they are continuous, or of both kinds."""
    branches = demonstrations.branches or ()
    low, high = _bounds(demonstrations)
    if low or not branches:
        low += [0.0] * len(branches)
        return _box(low, high + [float(choices - 1) for choices in branches])
    if len(branches) == 1:
        return json.dumps({"type": "Discrete", "dtype": "int64", "start": 0, "n": branches[0]})
    start = [0] * len(branches)
    return json.dumps(
        {"type": "MultiDiscrete", "dtype": "int64", "nvec": list(branches), "start": start}
    )


def _bounds(demonstrations: DemonstrationSet) -> tuple[list[float], list[float]]:
    """Return lower and upper bounds of the continuous actions: [-1, 1], or more if rows do."""
    continuous = demonstrations.actions - len(demonstrations.branches or ())
    actions = demonstrations.columns.action[:, :continuous]
    low, high = actions.min(axis=0, initial=-1.0), actions.max(axis=0, initial=1.0)
    return low.tolist(), high.tolist()


def _actions(demonstrations: DemonstrationSet, action: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the actions of an episode as values of `_action_space`, [steps, ...]."""
    branches = demonstrations.branches or ()
    if len(branches) < demonstrations.actions or not branches:
        return action
    choices = action.astype(np.int64)
    return choices[:, 0] if len(branches) == 1 else choices


def _env_spec(demonstrations: DemonstrationSet) -> dict[str, str]:
    """
    Return the spec from which Minari's `recover_environment` makes the environment, if possible.

    The environment is `arkml/Guest-v0` with the played module, and shows the rows of the dataset.
    """
    branches = demonstrations.branches or ()
    if not demonstrations.module or 0 < len(branches) < demonstrations.actions:
        return {}
    low, high = _bounds(demonstrations)
    bounds = {"low": low, "high": high} if low else {}
    spec = {
        "observations": [{"name": "obs_0", "shape": [demonstrations.features]}],
        "actions": {"discrete": list(branches), **bounds},
    }
    digest = demonstrations.sha256 or None
    kwargs = {"module": demonstrations.module, "digest": digest, "spec": spec}
    known: dict[str, Any] = {
        "id": "arkml/Guest-v0",
        "entry_point": "arkml.envs.gymnasium_env:GuestGymEnv",
        "reward_threshold": None,
        "nondeterministic": False,
        "max_episode_steps": None,
        "order_enforce": True,
        "disable_env_checker": False,
        "kwargs": kwargs,
        "additional_wrappers": [],
        "vector_entry_point": "arkml.envs.vector_env:vector_env",
    }
    return {"env_spec": json.dumps(known)}


def _box(low: list[float], high: list[float]) -> str:
    return json.dumps(
        {"type": "Box", "dtype": "float32", "shape": [len(low)], "low": low, "high": high}
    )
