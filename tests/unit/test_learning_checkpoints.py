"""Checkpoints are whole or passed over, and the newest and the best are kept."""

import json
import os
import pickle
import struct
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from safetensors.numpy import load

from arkml.errors import HiveError, InvalidSettings
from arkml.hive.protocol.rows import Place
from arkml.hive.protocol.settings import Settings
from arkml.learning import checkpoint_files
from arkml.learning.algorithm import Diverged, State
from arkml.learning.checkpoint_files import (
    Checkpoint,
    CheckpointDamaged,
    CheckpointOutdated,
    Checkpoints,
    read_checkpoint,
    shaping_settings,
)
from arkml.learning.learner import make_algorithm
from arkml.learning.normalizer import Normalizer

SETTINGS = Settings(3, 2, hidden=8)
TENSORS = {
    "actor/0/weight": np.linspace(-1.0, 1.0, 12, dtype=np.float32).reshape(4, 3),
    "actor/0/bias": np.zeros(0, np.float32),
    "random": np.array([1, 2**32 - 1], np.uint32),
    "updates": np.array(7, np.int32),
    "seconds": np.array(0.1, np.float64),
    "rows": np.array([-1, 1 << 62], np.int64),
    "seeds": np.array([(1 << 64) - 1], np.uint64),
}


def checkpoint(n_opts, run="run", **tensors):
    state = State(TENSORS | tensors, {"random": {"state": 1 << 127}, "loss": float("inf")})
    place = Place(2, 345)
    facts = {"origin": 0, "text": "ä"}
    return Checkpoint(run, shaping_settings(SETTINGS), n_opts, 10 * n_opts, place, state, facts)


def same(first, second):
    names = ("run", "shaping", "n_opts", "rows", "cursor", "facts")
    tensors, others = first.state.tensors, second.state.tensors
    return (
        all(getattr(first, name) == getattr(second, name) for name in names)
        and first.state.plain == second.state.plain
        and tensors.keys() == others.keys()
        and all(tensors[n].dtype == others[n].dtype for n in tensors)
        and all(tensors[n].shape == others[n].shape for n in tensors)
        and all(tensors[n].tobytes() == others[n].tobytes() for n in tensors)
    )


def safetensors(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def test_what_was_saved_is_read_back(tmp_path):
    kept = Checkpoints(tmp_path / "new")
    path = kept.save(checkpoint(7))

    assert path.name == "000000000007.safetensors"
    assert same(kept.newest(), checkpoint(7))
    assert same(kept.find(7), checkpoint(7))
    assert kept.find(8) is None


def test_a_checkpoint_is_a_file_that_every_reader_of_safetensors_opens(tmp_path):
    path = Checkpoints(tmp_path).save(checkpoint(7))
    tensors = load(path.read_bytes())

    assert tensors.keys() == TENSORS.keys()
    assert tensors["actor/0/weight"].tolist() == TENSORS["actor/0/weight"].tolist()


def test_a_tensor_that_is_not_contiguous_is_saved_as_it_reads(tmp_path):
    kept = Checkpoints(tmp_path)
    turned = TENSORS["actor/0/weight"].T
    kept.save(checkpoint(1, turned=turned))

    assert kept.newest().state.tensors["turned"].tolist() == turned.tolist()


def test_tensors_that_were_read_can_be_written_to(tmp_path):
    kept = Checkpoints(tmp_path)
    kept.save(checkpoint(1))
    weight = kept.newest().state.tensors["actor/0/weight"]
    weight += 1.0

    assert weight[0, 0] == 0.0


def test_without_checkpoints_there_is_no_newest(tmp_path):
    assert Checkpoints(tmp_path / "none").newest() is None


def test_five_and_the_best_are_kept(tmp_path):
    kept = Checkpoints(tmp_path)
    for n_opts in range(1, 11):
        kept.save(checkpoint(n_opts), best=n_opts == 2)

    assert kept.numbers() == [2, 6, 7, 8, 9, 10]
    assert kept.best == 2
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_state_that_is_not_finite_is_not_saved(tmp_path, value):
    kept = Checkpoints(tmp_path)
    kept.save(checkpoint(1))

    with pytest.raises(Diverged, match="critic/bias is not finite after 2 updates"):
        kept.save(checkpoint(2, **{"critic/bias": np.full(2, value, np.float32)}))
    assert kept.numbers() == [1]


@pytest.mark.parametrize("dtype", [np.float16, np.complex64, bool, object])
def test_a_tensor_of_another_type_is_not_saved(tmp_path, dtype):
    with pytest.raises(TypeError, match=r"tensor 'odd' is of .*: expected one of float32, "):
        Checkpoints(tmp_path).save(checkpoint(1, odd=np.zeros(1, dtype)))


@pytest.mark.parametrize("keep", [0, 7, 8, 10, 500, -1])
def test_a_truncated_checkpoint_is_passed_over(tmp_path, keep):
    kept = Checkpoints(tmp_path)
    kept.save(checkpoint(1))
    path = kept.save(checkpoint(2))
    path.write_bytes(path.read_bytes()[:keep])

    assert kept.newest().n_opts == 1


@pytest.mark.parametrize("flip", [0x01, 0x08, 0xFF])
def test_no_wrong_byte_of_a_checkpoint_goes_unnoticed(tmp_path, flip):
    path = Checkpoints(tmp_path).save(checkpoint(2))
    whole = path.read_bytes()
    unnoticed = []
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :])
        try:
            if not same(read_checkpoint(path), checkpoint(2)):
                unnoticed.append(at)
        except CheckpointDamaged:
            pass

    assert unnoticed == []


@given(data=st.binary(max_size=200) | st.binary(max_size=200).map(safetensors))
def test_any_bytes_are_refused_as_damaged(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    path.write_bytes(data)

    with pytest.raises(CheckpointDamaged, match=r"any\.safetensors cannot be read"):
        read_checkpoint(path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=6,
)


@settings(deadline=None)
@given(
    field=st.sampled_from(["format", "run", "shaping", "n_opts", "rows", "cursor", "algorithm"]),
    value=JSON,
)
def test_a_forged_checkpoint_is_refused_or_has_the_right_types(tmp_path_factory, field, value):
    path = forged(tmp_path_factory.getbasetemp() / "forged.safetensors", **{field: value})
    try:
        found = read_checkpoint(path)
    except CheckpointDamaged:
        found = checkpoint(1)

    assert isinstance(found.run, str)
    assert isinstance(found.state.plain, dict)
    assert isinstance(found.shaping, dict)
    assert all(type(n) is int and n >= 0 for n in (found.n_opts, found.rows, *found.cursor))


FACTS = {
    "format": 2,
    "run": "run",
    "shaping": shaping_settings(SETTINGS),
    "n_opts": 1,
    "rows": 1,
    "cursor": [0, 0],
    "algorithm": {},
    "facts": {},
}


def forged(path, **changes):
    """A checkpoint with other facts, whose checksum is right."""
    from arkml.learning.checkpoint_files import _digest

    text = json.dumps(FACTS | changes)
    path.write_bytes(safetensors({"__metadata__": {"arkml": text, "sha256": _digest(text, {})}}))
    return path


def test_a_forged_checkpoint_without_changes_is_read(tmp_path):
    assert read_checkpoint(forged(tmp_path / "forged.safetensors")).run == "run"


def tensor(dtype="F32", shape=(1,), offsets=(0, 4)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


HOSTILE = {
    "a header larger than the file": struct.pack("<Q", 1 << 62) + b"{}",
    "a header of 100 MB that is not there": struct.pack("<Q", 100_000_000) + b"{}",
    "a header that is no object": safetensors([1]),
    "a header nested deeply": safetensors(b"[" * 100_000),
    "a tensor that is no object": safetensors({"a": 1}),
    "a tensor of another type": safetensors({"a": tensor("BF16", (2,))}, b"abcd"),
    "a tensor whose type is a list": safetensors({"a": tensor(["F32"])}, b"abcd"),
    "a tensor larger than the file": safetensors({"a": tensor(shape=(1 << 40,))}, b"abcd"),
    "a tensor whose size overflows": safetensors({"a": tensor(shape=(1 << 63, 1 << 63))}, b"abcd"),
    "a tensor of negative size": safetensors({"a": tensor(shape=(-1,))}, b"abcd"),
    "a tensor that is empty and huge": safetensors(
        {"a": tensor(shape=(0, 1 << 62), offsets=(0, 0))}
    ),
    "a tensor of a hundred dimensions": safetensors({"a": tensor(shape=(1,) * 100)}, b"abcd"),
    "a tensor beyond the file": safetensors({"a": tensor(offsets=(4, 8))}, b"abcd"),
    "tensors that overlap": safetensors({"a": tensor(), "b": tensor()}, b"abcd"),
    "bytes that no tensor has": safetensors({"a": tensor()}, b"abcdefgh"),
    "two tensors of one name": safetensors(
        b'{"a":%b,"a":%b}' % ((json.dumps(tensor()).encode(),) * 2), b"abcd"
    ),
    "no facts": safetensors({"a": tensor()}, b"abcd"),
    "no metadata": safetensors({"__metadata__": None}),
    "no checksum": safetensors({"__metadata__": {"arkml": '{"format": 2}'}}),
    "facts that are no object": safetensors({"__metadata__": {"arkml": "[2]"}}),
    "facts nested deeply": safetensors({"__metadata__": {"arkml": "[" * 100_000}}),
    "metadata that is no text": safetensors({"__metadata__": {"arkml": 1}}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_as_damaged(tmp_path, name):
    path = tmp_path / "hostile.safetensors"
    path.write_bytes(HOSTILE[name])

    with pytest.raises(
        CheckpointDamaged, match=r"hostile\.safetensors cannot be read: ."
    ) as refused:
        read_checkpoint(path)
    assert not isinstance(refused.value, CheckpointOutdated)


def sparse(path, size, **shaping):
    """A checkpoint whose only tensor has `size` bytes of nothing, which take no space."""
    text = json.dumps(FACTS | {"shaping": FACTS["shaping"] | shaping})
    header = {"a": tensor(shape=(size // 4,), offsets=(0, size))}
    path.write_bytes(safetensors(header | {"__metadata__": {"arkml": text, "sha256": ""}}))
    os.truncate(path, path.stat().st_size + size)
    return path


def refuse_to_read(_):
    pytest.fail("its tensors are read")


def test_a_checkpoint_for_which_there_is_no_memory_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_files, "load", refuse_to_read)
    path = sparse(tmp_path / "000000000001.safetensors", 1 << 40)

    with pytest.raises(HiveError, match=r"1,099,5\d\d,\d{3},\d{3} bytes: reading it takes 3,298,"):
        read_checkpoint(path)
    with pytest.raises(HiveError, match="are free"):  # not: a run that begins anew
        Checkpoints(tmp_path).newest()


def test_a_checkpoint_with_more_bytes_than_its_run_can_have_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_files, "load", refuse_to_read)
    path = sparse(tmp_path / "large.safetensors", 4 << 20)

    with pytest.raises(CheckpointDamaged, match="a run with these settings has at most 10"):
        read_checkpoint(path, SETTINGS)


def test_a_checkpoint_of_other_shapes_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_files, "load", refuse_to_read)
    path = sparse(tmp_path / "other.safetensors", 4 << 20, hidden=8_192)

    with pytest.raises(InvalidSettings, match="hidden is 8: the checkpoint run@1 was learned with"):
        read_checkpoint(path, SETTINGS)


LEARNERS = [
    Settings(3, 2),
    Settings(500, 40, layers=8, hidden=300),
    Settings(9, 1, layers=1),
    Settings(4, 3, (2, 90), "ppo"),
    Settings(1, 1, (4_096,), hidden=1, layers=1),
    Settings(4, 1, algorithm="ppo", memory=1_024),
    Settings(3_000, 1, algorithm="ppo", memory=2, hidden=400),
]


@pytest.mark.parametrize("chosen", LEARNERS)
def test_checkpoints_of_own_learners_are_within_the_size_of_their_run(tmp_path, chosen):
    algorithm = make_algorithm(chosen, Normalizer(chosen.features, active=True))
    shaping = shaping_settings(chosen)
    made = Checkpoint("run", shaping, 0, 0, Place(0, 0), algorithm.state(), {})
    path = Checkpoints(tmp_path).save(made)

    assert read_checkpoint(path, chosen).state.tensors.keys() == made.state.tensors.keys()


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_a_tensor_that_is_not_finite_is_refused(tmp_path, value):
    from arkml.learning.checkpoint_files import _digest

    text = json.dumps(FACTS)
    data = np.array([value], np.float32)
    header = {"a": tensor(), "__metadata__": {"arkml": text, "sha256": _digest(text, {"a": data})}}
    path = tmp_path / "nan.safetensors"
    path.write_bytes(safetensors(header, data.tobytes()))

    with pytest.raises(CheckpointDamaged, match="tensor 'a' is not finite"):
        read_checkpoint(path)


def test_a_checkpoint_of_a_later_format_is_refused_by_its_number(tmp_path):
    with pytest.raises(CheckpointDamaged, match="it has format 3, expected 2"):
        read_checkpoint(forged(tmp_path / "later.safetensors", format=3))


def test_code_in_a_checkpoint_is_not_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return (pytest.fail, ("it ran",))

    path = tmp_path / "evil.safetensors"
    path.write_bytes(pickle.dumps(Evil(), protocol=2))

    with pytest.raises(CheckpointDamaged):
        read_checkpoint(path)


def test_a_directory_is_not_a_checkpoint(tmp_path):
    with pytest.raises(CheckpointDamaged, match="cannot be read"):
        read_checkpoint(tmp_path)


def former(path):
    """A file as arkml 0.1 wrote it."""
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("state.pt", "state.json", "manifest.json"):
            archive.writestr(name, b"{}")
    return path


def test_a_checkpoint_of_an_earlier_version_is_refused_in_one_sentence(tmp_path):
    path = former(tmp_path / "000000000005.zip")
    sentence = (
        r"^000000000005\.zip was written by arkml 0\.1 with stable-baselines3 and cannot be"
        r" continued: train again, or with that version$"
    )

    with pytest.raises(CheckpointOutdated, match=sentence):
        read_checkpoint(path)
    with pytest.raises(CheckpointOutdated, match=sentence):
        Checkpoints(tmp_path).find(5)


def test_a_run_with_checkpoints_of_an_earlier_version_does_not_begin_anew(tmp_path):
    former(tmp_path / "000000000005.zip")
    kept = Checkpoints(tmp_path)
    with pytest.raises(CheckpointOutdated):
        kept.newest()
    kept.save(checkpoint(6))

    assert kept.newest().n_opts == 6


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"features": 4}, "features is 4: the checkpoint run@1 was learned with 3"),
        ({"actions": 1}, "actions is 1: the checkpoint run@1 was learned with 2"),
        ({"hidden": 64}, "hidden is 64: the checkpoint run@1 was learned with 8"),
        ({"layers": 3}, "layers is 3: the checkpoint run@1 was learned with 2"),
        ({"algorithm": "ppo"}, "learner is 'ppo': the checkpoint run@1 was learned with 'sac'"),
        ({"branches": (2,), "algorithm": "ppo"}, "learner is 'ppo'"),
    ],
)
def test_a_run_of_other_shapes_does_not_continue_from_it(changes, sentence):
    with pytest.raises(InvalidSettings, match=sentence):
        checkpoint(1).check_fits(replace(SETTINGS, **changes))


def test_a_run_with_other_rates_continues_from_it():
    checkpoint(1).check_fits(replace(SETTINGS, algorithm="sac", learning_rate_init=1e-2, seed=9))


def test_a_checkpoint_that_could_not_be_written_leaves_the_others(tmp_path, monkeypatch):
    kept = Checkpoints(tmp_path)
    kept.save(checkpoint(1))

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        kept.save(checkpoint(2))

    assert kept.numbers() == [1]
    assert not list(tmp_path.glob(".*"))
