"""Files of demonstrations: what is written comes back, and what is hostile is refused."""

import io
import json
import math
import os
import re
import struct
import zipfile
import zlib
from pathlib import Path

import gymnasium
import h5py
import numpy as np
import pytest
from tests.integration.command_line import GUESTS

from arkml.abi.codes import EpisodeState
from arkml.demonstrations.dataset import MOST_BYTES, DemonstrationSet, row_columns
from arkml.demonstrations.demonstration_files import (
    read_demonstrations,
    require_writable,
    write_demonstrations,
)
from arkml.errors import UsageError

INITIAL, RUNNING, TERMINAL, INTERRUPTED = (
    EpisodeState.INITIAL,
    EpisodeState.RUNNING,
    EpisodeState.TERMINAL,
    EpisodeState.INTERRUPTED,
)


def columns(**changes):
    """Two agents in turn: the first ends its episode, the second does not."""
    made = {
        "agent": np.array([7, 9, 7, 9, 7, 9], np.uint64),
        "step": np.array([0, 0, 1, 1, 2, 2]),
        "state": np.array([INITIAL, INITIAL, RUNNING, RUNNING, TERMINAL, RUNNING], np.uint8),
        "reward": np.array([0, 0, 1, 2, 3, 4], np.float32),
        "features": np.arange(18, dtype=np.float32).reshape(6, 3),
        "action": np.array([[0.1], [0.2], [0.3], [0.4], [0], [0.6]], np.float32),
    }
    return made | changes


def saved(path, **changes):
    np.savez(path, **columns(**changes))
    return path


def members(path, **parts):
    """A zip file whose members hold these bytes, beside the columns."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in columns().items():
            buffer = io.BytesIO()
            np.save(buffer, array)
            archive.writestr(f"{name}.npy", parts.pop(name, buffer.getvalue()))
        for name, data in parts.items():
            archive.writestr(f"{name}.npy", data)
    return path


def header(shape, dtype="<f4"):
    """The beginning of an array's file, with no data after it."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        buffer, {"descr": dtype, "fortran_order": False, "shape": shape}
    )
    return buffer.getvalue()


def rows_of(demonstrations):
    rows = demonstrations.columns
    return [rows.agent, rows.step, rows.state, rows.reward, rows.features, rows.action]


@pytest.mark.parametrize("branches", [(), None], ids=["none", "unknown"])
def test_rows_written_as_npz_come_back_with_what_is_known_of_them(tmp_path, branches):
    written = DemonstrationSet(row_columns(**columns()), branches, "walker.wasm", "ab12")
    write_demonstrations(tmp_path / "rows.npz", written)
    read = read_demonstrations(tmp_path / "rows.npz")

    assert all(map(np.array_equal, rows_of(read), rows_of(written)))
    assert (read.branches, read.guest, read.sha256) == (branches, "walker.wasm", "ab12")
    assert (read.features, read.actions, len(read), read.episodes) == (3, 1, 6, 1)
    assert read.digest == written.digest
    assert read.warnings == ()


def test_a_written_npz_loads_without_pickles_and_its_text_is_json(tmp_path):
    write_demonstrations(tmp_path / "rows.npz", DemonstrationSet(row_columns(**columns()), (2,)))
    with np.load(tmp_path / "rows.npz", allow_pickle=False) as file:
        about = json.loads(str(file["about"]))
        names = set(file.files)

    assert names == {"about", *columns()}
    assert about["version"] == 1
    assert about["branches"] == [2]


def test_an_npz_made_by_hand_needs_no_description_and_may_have_other_types(tmp_path):
    path = saved(
        tmp_path / "rows.npz", reward=np.arange(6), features=np.asfortranarray(np.ones((6, 2)))
    )
    read = read_demonstrations(path)

    assert read.branches is None
    assert read.columns.reward.tolist() == [0, 1, 2, 3, 4, 5]
    assert read.columns.features.shape == (6, 2)


def test_rows_that_are_not_finite_are_left_out_and_counted(tmp_path):
    features = columns()["features"].astype(np.float64)
    features[2, 1], features[3, 0] = np.nan, 1e300
    read = read_demonstrations(saved(tmp_path / "rows.npz", features=features))

    assert read.columns.step.tolist() == [0, 0, 2, 2]
    assert len(read.warnings) == 1
    assert "2 of 6 rows" in read.warnings[0]


def test_actions_outside_of_their_bounds_are_a_warning(tmp_path):
    action = columns()["action"] * 10
    read = read_demonstrations(saved(tmp_path / "rows.npz", action=action))

    assert "4 of 6 rows" in read.warnings[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": np.ones(6)}, "'features' of .* shape"),
        ({"reward": np.ones(5)}, "'reward' of .* shape"),
        ({"action": np.ones((6, 0))}, "'action' of .* is 0 wide"),
        ({"state": np.full(6, 9)}, "row 0 of .* has state 9: it takes 0 to 3"),
        ({"agent": np.full(6, -1)}, "row 0 of .* has agent -1"),
        ({"step": np.full(6, 1 << 40)}, "has step"),
        ({"reward": np.full(6, np.nan)}, "no rows to learn from"),
        ({"reward": np.array(["1"] * 6)}, "'reward' of .* is of type <U1"),
        ({"reward": np.array([{}] * 6, object)}, "'reward' of .* is of type object"),
        ({"about": np.array('{"format": "arkml demonstrations", "version": 2}')}, "version 2"),
        ({"about": np.array('{"branches": [0]}')}, "branches of \\[0\\] choices"),
        ({"about": np.array('{"branches": [2]}')}, "row 0 of .* has 0.1 as action 0"),
        ({"about": np.array('{"branches": [2, 2]}')}, "has 1 actions, and branches of"),
        ({"about": np.array('{"features": 5}')}, "says 5 features"),
        ({"about": np.array("{")}, "not an .npz file of demonstrations"),
    ],
)
def test_an_npz_that_cannot_be_demonstrations_is_refused_with_what_is_wrong(
    tmp_path, changes, message
):
    path = saved(tmp_path / "rows.npz", **changes)

    with pytest.raises(UsageError, match=message):
        read_demonstrations(path)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"features": header((1 << 40, 3))}, f"more than {MOST_BYTES:,} bytes"),
        ({"features": header((-6, 3))}, "not an .npz file"),
        ({"features": header((6, 3))}, "ends after 0 of 72 bytes"),
        ({"features": b"\x93NUMPY\x09\x00"}, "not an .npz file"),
        ({"features": b"nothing"}, "not an .npz file"),
        ({"features": b"\x93NUMPY\x01\x00\x10\x00__import__('os') "}, "not an .npz file"),
        ({"about": header((), "<U400000")}, "more than"),
    ],
)
def test_sizes_that_an_npz_claims_are_checked_before_anything_is_decompressed(
    tmp_path, parts, message
):
    path = members(tmp_path / "rows.npz", **parts)

    with pytest.raises(UsageError, match=message):
        read_demonstrations(path)


def test_other_members_of_an_npz_are_not_read(tmp_path):
    path = members(tmp_path / "rows.npz", bomb=bytes(64 << 20))

    assert len(read_demonstrations(path)) == 6


def test_an_npz_with_a_directory_of_many_members_is_refused_before_it_is_read(tmp_path):
    path = saved(tmp_path / "rows.npz")
    with zipfile.ZipFile(path, "a") as archive:
        for number in range(17):
            member = zipfile.ZipInfo(str(number))
            member.comment = bytes(0xFFFF)  # which lies in the directory
            archive.writestr(member, b"")

    with pytest.raises(UsageError, match="its directory has more than 1,048,576 bytes"):
        read_demonstrations(path)


@pytest.mark.parametrize("size", [0, 10, 300])
def test_an_npz_that_was_cut_off_is_refused(tmp_path, size):
    path = saved(tmp_path / "rows.npz")
    path.write_bytes(path.read_bytes()[:size])

    with pytest.raises(UsageError, match=r"not an \.npz file"):
        read_demonstrations(path)


METHODS = [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]


@pytest.mark.parametrize("method", METHODS, ids=["deflate", "bzip2", "lzma"])
def test_an_npz_whose_packed_bytes_are_damaged_is_refused(tmp_path, method):
    path = tmp_path / "rows.npz"
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, array in columns().items():
            buffer = io.BytesIO()
            np.save(buffer, array)
            archive.writestr(f"{name}.npy", buffer.getvalue())
    whole = path.read_bytes()
    begin = whole.index(b"agent.npy") + len("agent.npy")
    path.write_bytes(whole[:begin] + b"\xff" * 12 + whole[begin + 12 :])

    with pytest.raises(UsageError, match=r"rows\.npz (is not an \.npz file|cannot be read)"):
        read_demonstrations(path)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA], ids=["bzip2", "lzma"])
def test_an_npz_in_a_format_that_unpacks_without_a_limit_is_refused(tmp_path, method):
    path = tmp_path / "rows.npz"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("agent.npy", bytes(1000))

    with pytest.raises(UsageError, match=f"'agent' is compressed by the method {method}"):
        read_demonstrations(path)


def test_a_file_that_is_not_there_is_a_sentence(tmp_path):
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_demonstrations(tmp_path / "rows.npz")


def test_a_dataset_of_minari_has_the_episodes_that_were_written(tmp_path):
    written = DemonstrationSet(row_columns(**columns()), ())
    write_demonstrations(tmp_path / "walker-v0", written)
    read = read_demonstrations(tmp_path / "walker-v0").columns

    assert read.step.tolist() == [0, 1, 2, 0, 1, 2]
    assert read.state.tolist() == [INITIAL, RUNNING, TERMINAL, INITIAL, RUNNING, INTERRUPTED]
    assert read.reward.tolist() == [0, 1, 3, 0, 2, 4]
    assert read.features[:3].tolist() == columns()["features"][[0, 2, 4]].tolist()
    assert read.action[:, 0].tolist() == pytest.approx([0.1, 0.3, 0, 0.2, 0.4, 0])


def test_a_written_dataset_has_the_layout_that_minari_documents(tmp_path):
    write_demonstrations(tmp_path / "walker-v0", DemonstrationSet(row_columns(**columns()), ()))
    metadata = json.loads((tmp_path / "walker-v0/data/metadata.json").read_text())
    with h5py.File(tmp_path / "walker-v0/data/main_data.hdf5") as file:
        shapes = {name: array.shape for name, array in file["episode_0"].items()}
        attributes = dict(file["episode_1"].attrs)

    assert (metadata["total_episodes"], metadata["total_steps"]) == (2, 4)
    assert metadata["data_format"] == "hdf5"
    assert metadata["dataset_id"] == "walker-v0"
    assert json.loads(metadata["action_space"])["low"] == [-1.0]
    assert shapes == {
        "observations": (3, 3), "actions": (2, 1), "rewards": (2,),
        "terminations": (2,), "truncations": (2,),
    }  # fmt: skip
    assert attributes == {"id": 1, "total_steps": 2}


def test_a_dataset_has_the_spaces_of_its_environment_and_makes_it_again(tmp_path):
    module = str(GUESTS / "c_cartpole.wasm")
    played = DemonstrationSet(row_columns(**columns()), (), "c_cartpole.wasm", "", module)
    write_demonstrations(tmp_path / "pole-v0", played)
    metadata = json.loads((tmp_path / "pole-v0/data/metadata.json").read_text())
    space = json.loads(metadata["observation_space"])
    spec = gymnasium.envs.registration.EnvSpec.from_json(metadata["env_spec"])
    del spec.kwargs["spec"]["observations"]  # of rows that are not a pole's
    with gymnasium.make(spec, configure=(1, 7)) as env:
        env.reset(seed=1)

    assert space["low"] == [-math.inf] * 3
    assert space["high"] == [math.inf] * 3
    assert spec.kwargs["module"] == module


def test_the_space_of_actions_has_all_that_were_taken(tmp_path):
    action = np.linspace(-3, 0.5, 6, dtype=np.float32)[:, None]
    rows = row_columns(**(columns() | {"action": action}))
    played = DemonstrationSet(rows, (), "c_cartpole.wasm", "", str(GUESTS / "c_cartpole.wasm"))
    write_demonstrations(tmp_path / "pole-v0", played)
    metadata = json.loads((tmp_path / "pole-v0/data/metadata.json").read_text())
    space = json.loads(metadata["action_space"])
    declared = json.loads(metadata["env_spec"])["kwargs"]["spec"]["actions"]

    assert (space["low"], space["high"]) == ([-3.0], [1.0])
    assert (declared["low"], declared["high"]) == ([-3.0], [1.0])


@pytest.mark.parametrize(
    ("branches", "space", "kept"),
    [((9,), "Discrete", (2,)), ((), "Box", (2, 1))],
)
def test_choices_are_written_as_values_of_the_space_of_choices(tmp_path, branches, space, kept):
    rows = row_columns(**(columns() | {"action": np.ones((6, 1), np.float32)}))
    write_demonstrations(tmp_path / "walker-v0", DemonstrationSet(rows, branches))
    metadata = json.loads((tmp_path / "walker-v0/data/metadata.json").read_text())
    with h5py.File(tmp_path / "walker-v0/data/main_data.hdf5") as file:
        actions = file["episode_0"]["actions"]

        assert json.loads(metadata["action_space"])["type"] == space
        assert actions.shape == kept
        assert actions.dtype.kind == ("i" if branches else "f")
    assert read_demonstrations(tmp_path / "walker-v0").columns.action[:2].tolist() == [[1], [1]]


def dataset(folder, change):
    """A dataset that is written, and then changed in its first episode."""
    write_demonstrations(folder / "walker-v0", DemonstrationSet(row_columns(**columns()), ()))
    with h5py.File(folder / "walker-v0/data/main_data.hdf5", "a") as file:
        change(file["episode_0"])
    return folder / "walker-v0"


def replaced(name, **how):
    def change(group):
        del group[name]
        group.create_dataset(name, **how)

    return change


def packed(content, **how):
    """Replace the rewards by an array with `content` as its only chunk."""

    def change(group):
        del group["rewards"]
        group.create_dataset("rewards", (2,), "f4", maxshape=(None,), **how)
        group["rewards"].id.write_direct_chunk((0,), content)

    return change


def linked(group):
    del group["rewards"]
    group["rewards"] = h5py.ExternalLink("/etc/passwd", "rewards")


def outside(group):
    del group["rewards"]
    group.create_dataset("rewards", (2,), "f8", external=[("/etc/passwd", 0, 16)])


def missing(group):
    del group["rewards"]


def structured(group):
    del group["observations"]
    group.create_group("observations").create_dataset("camera", data=np.ones((3, 2)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (linked, "a link to somewhere else"),
        (outside, "lies in another file"),
        (missing, "link to somewhere else|not a dataset"),
        (structured, "'observations' of .* is a structure"),
        (replaced("rewards", data=np.ones(3)), "has 3 rewards, 3 observations"),
        (replaced("rewards", data=np.array([b"a", b"b"])), "is of type"),
        (replaced("rewards", shape=(1 << 40,), dtype="f8", chunks=(1 << 20,)), "hold more than"),
        (replaced("terminations", data=np.array([True, False])), "ends after step 0"),
        (replaced("actions", data=np.ones((2, 5))), "differ in the shape of their action"),
    ],
)
def test_a_dataset_that_cannot_be_demonstrations_is_refused_with_what_is_wrong(
    tmp_path, change, message
):
    path = dataset(tmp_path, change)

    with pytest.raises(UsageError, match=message):
        read_demonstrations(path)


def test_a_dataset_of_another_format_is_refused(tmp_path):
    (tmp_path / "metadata.json").write_text('{"data_format": "arrow"}')

    with pytest.raises(UsageError, match="stored as 'arrow'"):
        read_demonstrations(tmp_path)


def test_a_directory_without_a_dataset_is_refused(tmp_path):
    with pytest.raises(UsageError, match="not a dataset of Minari"):
        read_demonstrations(tmp_path)


HEADERS = {
    "brackets": "(" * 4_000,
    "a shape of booleans": "{'descr': '<f4', 'fortran_order': False, 'shape': (True, 3), }",
    "a negative shape": "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }",
    "a type of nothing": "{'descr': (), 'fortran_order': False, 'shape': (3,), }",
    "a type in itself": "{'descr': [" + "[" * 900 + "], 'fortran_order': False, 'shape': (3,), }",
    "a shape of floats": "{'descr': '<f4', 'fortran_order': False, 'shape': (1e9,), }",
    "no mapping": "3",
}


@pytest.mark.parametrize("what", HEADERS)
def test_a_header_of_an_array_that_python_cannot_read_is_a_sentence(tmp_path, what):
    text = HEADERS[what].encode() + b"\n"
    agent = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text
    path = members(tmp_path / "rows.npz", agent=agent)

    with pytest.raises(UsageError):
        read_demonstrations(path)


def no_plain_files(folder):
    """Paths of things that are not plain files: some of them are never read to an end."""
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to("/dev/zero")
    (folder / "folder").mkdir()
    return [folder / "pipe", folder / "link", Path("/dev/zero"), folder / "folder"]


GZIP_BOMB = zlib.compress(bytes(32 << 20), 1)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (packed(b"x", chunks=(20 << 20,)), "has chunks of 83,886,080 bytes"),
        (
            packed(b"x", chunks=(300 << 20,), compression="gzip"),
            "has chunks of 1,258,291,200 bytes",
        ),
        (packed(GZIP_BOMB, chunks=(2,), compression="gzip"), "in a chunk of 8: it is damaged"),
        (
            packed(GZIP_BOMB, chunks=(1 << 20,), compression="gzip", shuffle=True, fletcher32=True),
            "has a chunk that unpacks to more than 4,194,304 bytes",
        ),
        (
            packed(b"x" * 100_000, chunks=(1 << 20,), compression="gzip"),
            "has a damaged chunk: Error -3 while decompressing data",
        ),
        (packed(bytes(13 << 20), chunks=(4 << 20,), compression="lzf"), "with smaller chunks"),
        (
            replaced("rewards", data=np.ones(2, int), scaleoffset=3),
            "has the filters [6]: it takes gzip or lzf",
        ),
    ],
)
def test_chunks_that_unpack_to_more_than_they_should_are_refused(tmp_path, change, sentence):
    with pytest.raises(UsageError, match=re.escape(sentence)):
        read_demonstrations(dataset(tmp_path, change))


@pytest.mark.parametrize("chunks", [None, (2,), (1000,)])
@pytest.mark.parametrize("compression", [None, "gzip", "lzf"])
def test_compressed_rows_are_those_that_were_written(tmp_path, chunks, compression):
    how = {"chunks": chunks, "compression": compression, "maxshape": (None,), "shuffle": True}
    path = dataset(tmp_path, replaced("rewards", data=np.float32([0.5, 2.5]), **how))

    assert read_demonstrations(path).columns.reward[:3].tolist() == [0, 0.5, 2.5]


def test_large_compressed_chunks_are_read(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (3, 60_000), np.uint8)
    how = {"chunks": noise.shape, "compression": "gzip", "fletcher32": True}
    change = replaced("observations", data=noise, **how)
    path = dataset(tmp_path, lambda group: [change(each) for each in group.parent.values()])

    assert np.array_equal(read_demonstrations(path).columns.features[:3], noise)


def test_what_is_not_a_plain_file_is_neither_waited_for_nor_read(tmp_path):
    for path in no_plain_files(tmp_path):
        with pytest.raises(UsageError):
            read_demonstrations(path)


@pytest.mark.parametrize("name", ["main_data.hdf5", "metadata.json"])
@pytest.mark.parametrize("place", range(4))
def test_a_dataset_whose_files_are_not_plain_is_refused(tmp_path, name, place):
    path = dataset(tmp_path / "set", lambda _: None)
    (file,) = path.rglob(name)
    file.unlink()
    (tmp_path / "others").mkdir()
    file.symlink_to(no_plain_files(tmp_path / "others")[place])

    with pytest.raises(UsageError):
        read_demonstrations(path)


@pytest.mark.parametrize("name", ["data", "data/main_data.hdf5", "data/metadata.json"])
def test_no_file_of_a_dataset_is_read_through_a_link(tmp_path, name):
    path, other = dataset(tmp_path / "set", lambda _: None), tmp_path / "other"
    (path / name).rename(other)
    (path / name).symlink_to(other)

    with pytest.raises(UsageError, match=r"cannot be read: it is a symbolic link"):
        read_demonstrations(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda file: file.create_group(f"episode_{10**23}"),
        lambda file: file.create_dataset("episode_7", data=np.ones(3)),
        lambda file: file.__setitem__("episode_7", h5py.ExternalLink("/dev/zero", "/")),
        lambda file: file.__setitem__("episode_7", h5py.ExternalLink("no such file", "/")),
        lambda file: file.__setitem__("episode_7", h5py.SoftLink("/episode_0")),
        lambda file: file.__setitem__("episode_007", file["episode_0"]),
    ],
)
def test_names_and_links_of_episodes_lead_nowhere_else(tmp_path, change):
    path = dataset(tmp_path, lambda _: None)
    (rows,) = path.rglob("main_data.hdf5")
    before = len(read_demonstrations(path))
    with h5py.File(rows, "a") as file:
        change(file)
    try:
        assert len(read_demonstrations(path)) == before
    except UsageError as error:
        assert "episode_7" in str(error)  # noqa: PT017  one of the two


def test_the_name_of_a_file_decides_on_its_format(tmp_path):
    (tmp_path / "walker-v0").mkdir()

    require_writable(tmp_path / "walker.npz")
    require_writable(tmp_path / "walker-v1")
    with pytest.raises(UsageError, match=r"written to FILE\.npz, or to NAME-v0"):
        require_writable(tmp_path / "walker.pkl")
    with pytest.raises(UsageError, match="is there already"):
        require_writable(tmp_path / "walker-v0")
