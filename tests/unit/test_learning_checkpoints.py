"""Checkpoints are whole or passed over, and the newest and the best are kept."""

import hashlib
import json
import pickle
import re
import zipfile

import pytest
import torch

from arkml.hive.protocol.segments import Place
from arkml.learning.algorithm import State
from arkml.learning.checkpoints import Checkpoint, CheckpointDamaged, Checkpoints


def checkpoint(n_opts, run="run"):
    state = State({"net": {"w": torch.arange(100.0) + n_opts}}, {"random": {"state": 1 << 127}})
    return Checkpoint(run, n_opts, 10 * n_opts, Place(2, 345), state, {"origin": 0})


def test_what_was_saved_is_read_back(tmp_path):
    kept = Checkpoints(tmp_path / "new")
    path = kept.save(checkpoint(7))
    found = kept.newest()

    assert path.name == "000000000007.zip"
    assert (
        found.state.tensors["net"]["w"].tolist() == checkpoint(7).state.tensors["net"]["w"].tolist()
    )
    assert found.state.plain == {"random": {"state": 1 << 127}}
    assert found.cursor == Place(2, 345)
    assert (found.run, found.n_opts, found.rows, found.facts) == ("run", 7, 70, {"origin": 0})


def test_without_checkpoints_there_is_no_newest(tmp_path):
    assert Checkpoints(tmp_path / "none").newest() is None


def test_five_and_the_best_are_kept(tmp_path):
    kept = Checkpoints(tmp_path)
    for n_opts in range(1, 11):
        kept.save(checkpoint(n_opts), best=n_opts == 2)

    assert kept.numbers() == [2, 6, 7, 8, 9, 10]
    assert kept.best == 2
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("keep", [0, 10, 1_000, -1])
def test_a_truncated_checkpoint_is_passed_over(tmp_path, keep):
    kept = Checkpoints(tmp_path)
    kept.save(checkpoint(1))
    path = kept.save(checkpoint(2))
    path.write_bytes(path.read_bytes()[:keep])

    assert kept.newest().n_opts == 1


def test_a_checkpoint_is_passed_over_whichever_of_its_bytes_are_wrong(tmp_path):
    kept = Checkpoints(tmp_path)
    kept.save(checkpoint(1))
    path = kept.save(checkpoint(2))
    whole = path.read_bytes()
    found = []
    for at in range(0, len(whole), 97):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        found.append(kept.newest())

    same = checkpoint(2).state.tensors["net"]["w"].tolist()
    assert all(c.n_opts == 1 or c.state.tensors["net"]["w"].tolist() == same for c in found)
    assert sum(c.n_opts == 1 for c in found) > len(found) / 2


def test_code_in_a_checkpoint_is_not_run(tmp_path):
    kept = Checkpoints(tmp_path)
    path = kept.save(checkpoint(2))

    class Evil:
        def __reduce__(self):
            return (pytest.fail, ("it ran",))

    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts["state.pt"] = pickle.dumps(Evil(), protocol=2)
    digest = hashlib.sha256(parts["state.pt"]).hexdigest()
    sums = json.loads(parts["manifest.json"])
    parts["manifest.json"] = json.dumps(sums | {"state.pt": digest}).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)

    with pytest.raises(CheckpointDamaged):
        kept.load(2)


def test_what_is_written_while_the_disk_is_full_leaves_what_was_there(tmp_path, monkeypatch):
    kept = Checkpoints(tmp_path)
    kept.save(checkpoint(1))

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        kept.save(checkpoint(2))

    assert kept.numbers() == [1]
    assert not list(tmp_path.glob(".*"))


def test_a_checkpoint_with_a_flipped_bit_in_its_headers_is_itself_or_is_passed_over(tmp_path):
    kept = Checkpoints(tmp_path)
    kept.save(checkpoint(1))
    path = kept.save(checkpoint(2))
    whole = path.read_bytes()
    found = set()
    headers = [match.start() for match in re.finditer(b"PK[\\x01-\\x06]{2}", whole)]
    for place in {at + byte for at in headers for byte in range(46) if at + byte < len(whole)}:
        data = bytearray(whole)
        data[place] ^= 8
        path.write_bytes(data)
        found.add(kept.newest().n_opts)

    assert found == {1, 2}
