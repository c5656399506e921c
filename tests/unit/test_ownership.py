"""What root makes for a service, and directories that a service may not use."""

import os
from pathlib import Path

from arkml.server import ownership


def test_links_are_given_and_not_what_they_lead_to(tmp_path, monkeypatch):
    given = {}

    def place(descriptor):
        return Path(f"/proc/self/fd/{descriptor}").readlink()

    def note(name, user, group, *, dir_fd, follow_symlinks):
        assert not follow_symlinks
        given[place(dir_fd) / name] = (user, group)

    def note_open(descriptor, user, group):
        given[place(descriptor)] = (user, group)

    inside, outside = tmp_path / "inside", tmp_path / "outside"
    (inside / "runs").mkdir(parents=True)
    outside.mkdir()
    (outside / "kept").touch()
    (inside / "runs" / "one").touch()
    (inside / "file").symlink_to(outside / "kept")
    (inside / "folder").symlink_to(outside)
    monkeypatch.setattr(os, "chown", note)
    monkeypatch.setattr(os, "fchown", note_open)
    opened = os.open(inside, os.O_RDONLY)
    ownership.give(opened, (3, 4))
    os.close(opened)

    assert given == dict.fromkeys(
        [inside, *(inside / name for name in ("runs", "runs/one", "file", "folder"))], (3, 4)
    )


def test_a_directory_of_another_user_is_refused_with_the_way_out(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 54_321)
    data = tmp_path / "hive"
    data.mkdir()
    owner = data.owner()

    for name in ("lock", "runs"):
        error = PermissionError(13, "Permission denied", str(data / name))
        said = ownership.refusal(data, error)
        assert said == (
            f"{data} belongs to {owner}, and this process runs as 54321: chown -R 54321 {data}, or"
            " name another --data"
        )
    error = PermissionError(13, "Permission denied", str(tmp_path / "more"))
    assert ownership.refusal(tmp_path / "more" / "hive", error) == (
        f"54321 may not use {tmp_path}/more (Permission denied): name another --data"
    )
