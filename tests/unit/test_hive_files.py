"""The small files of a run beside its document, whoever has written them."""

import pytest

from arkml.errors import ArkmlError
from arkml.hive.protocol.watch_messages import GuestReport
from arkml.learning.checkpoint_files import Checkpoints
from arkml.learning.event_files import read_events
from arkml.learning.run_directory import LogReader, RunDirectory
from arkml.server.hive_files import read_kept
from arkml.server.labels import Labels
from arkml.server.run_origin import RunStart
from arkml.training import training_record

KEPT = [
    Labels(title="t", tags=["a"]),
    RunStart("alice"),
    GuestReport("0" * 64, "walker.wasm", "walker"),
]


@pytest.mark.parametrize("kept", KEPT)
def test_what_was_written_is_read(tmp_path, kept):
    path = tmp_path / "kept.json"
    path.write_bytes(kept.as_bytes())

    assert read_kept(path, type(kept)) == kept
    assert read_kept(tmp_path / "none.json", type(kept)) is None


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("content", [b"", b"{", b"[" * 10_000, b"\xff", b'{"version": ', b"5"])
def test_a_damaged_file_counts_as_none_and_is_logged(tmp_path, caplog, kept, content):
    path = tmp_path / "kept.json"
    path.write_bytes(content)

    assert read_kept(path, type(kept)) is None
    assert f"{path} is left out, as it cannot be read: " in caplog.text


@pytest.mark.parametrize("kept", KEPT)
def test_a_file_that_is_too_long_or_a_link_is_not_read(tmp_path, caplog, kept):
    long, link = tmp_path / "long.json", tmp_path / "link.json"
    long.write_bytes(kept.as_bytes() + b" " * (1 << 20))
    (tmp_path / "elsewhere.json").write_bytes(kept.as_bytes())
    link.symlink_to("elsewhere.json")

    assert read_kept(long, type(kept)) is None
    assert read_kept(link, type(kept)) is None
    assert len(caplog.records) == 2


FILES = {
    "run.json": RunDirectory.open,
    "checkpoints/000000000005.safetensors": lambda run: Checkpoints(run / "checkpoints").find(5),
    "rows/0000000000.rows": lambda run: LogReader(run / "rows")._map(0),
    "events/events.1": lambda run: list(read_events(run / "events" / "events.1")),
    "training.json": lambda run: training_record._read(run / "training.json"),
}


@pytest.mark.parametrize("name", FILES)
def test_no_file_of_a_run_or_a_training_is_read_through_a_link(tmp_path, name):
    path, elsewhere = tmp_path / name, tmp_path / "elsewhere"
    elsewhere.write_bytes(b"{}")
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(elsewhere)

    with pytest.raises((OSError, ArkmlError), match="it is a symbolic link"):
        FILES[name](tmp_path)


def test_a_best_checkpoint_is_not_named_by_a_link(tmp_path):
    (tmp_path / "elsewhere").write_bytes(b"5")
    (tmp_path / "best").symlink_to("elsewhere")

    assert Checkpoints(tmp_path).best is None
