"""The small files of a run beside its document, whoever has written them."""

import pytest

from arkml.hive.protocol.watch_messages import GuestReport
from arkml.server.hive_files import read_kept
from arkml.server.labels import Labels
from arkml.server.run_origin import RunStart

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
