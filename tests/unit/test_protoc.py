"""The generator of messages from .proto files."""

import pytest
from tools import houses, protoc


def test_the_files_in_the_repository_are_what_is_generated():
    assert protoc.main(["--check"]) == 0


def test_a_missing_and_a_left_over_file_are_named_and_put_right(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "arkml" / "messages"
    folder.mkdir(parents=True)
    (folder / "thing.proto").write_text('syntax = "proto3"; package a; message Thing {}')
    (folder / "gone_pb2.py").write_text("")
    monkeypatch.setattr(houses, "SOURCE_ROOTS", (tmp_path,))
    monkeypatch.setattr(protoc, "PACKAGES", ("arkml/messages",))
    checked = protoc.main(["--check"])
    named = capsys.readouterr().err
    protoc.main([])

    assert checked == 1
    assert [line.partition(" ")[0] for line in named.splitlines()] == [
        "gone_pb2.py", "thing_pb2.py", "thing_pb2.pyi",
    ]  # fmt: skip
    assert protoc.main(["--check"]) == 0
    assert not (folder / "gone_pb2.py").exists()


def test_an_unknown_argument_is_named(capsys):
    assert protoc.main(["--what"]) == 2
    assert "unknown arguments ['--what']" in capsys.readouterr().err


def test_a_file_that_is_not_one_of_messages_is_refused(tmp_path, monkeypatch):
    folder = tmp_path / "arkml" / "messages"
    folder.mkdir(parents=True)
    (folder / "thing.proto").write_text("nothing")
    monkeypatch.setattr(houses, "SOURCE_ROOTS", (tmp_path,))

    with pytest.raises(RuntimeError, match=r"protoc refused .*thing\.proto"):
        protoc.derived(folder)
