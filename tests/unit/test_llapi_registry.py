"""The registry of players, and archives that are hostile."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import httpx
import pytest

from arkml.envs.llapi import envs
from arkml.envs.llapi.exception import UnityRegistryException
from arkml.envs.llapi.registry import UnityEnvRegistry, default_registry, download
from arkml.envs.llapi.registry.archives import ArchiveLimits
from arkml.envs.llapi.registry.base_registry_entry import BaseRegistryEntry
from arkml.envs.llapi.registry.binary_utils import get_local_binary_path, get_tmp_dirs
from arkml.envs.llapi.registry.remote_registry_entry import RemoteRegistryEntry

PLAYER = {"Game/Game.x86_64": b"#!/bin/sh\nexit 3\n", "Game/Game_Data/level": b"level"}


@pytest.fixture(autouse=True)
def linux(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")


@pytest.fixture
def packed(tmp_path):
    """Makes an archive; returns its path and URL."""

    def packed(members=PLAYER, compression=zipfile.ZIP_STORED):
        path = tmp_path / "archive.zip"
        with zipfile.ZipFile(path, "w", compression) as archive:
            for name, content in dict(members).items():
                archive.writestr(name, content)
        return path, path.as_uri()

    return packed


def entry(url, **fields):
    return RemoteRegistryEntry("Game", 1.0, "text", url, None, None, **fields)


def write_manifest(tmp_path, text):
    path = tmp_path / "manifest.yaml"
    path.write_text(text)
    return path


def names(folder):
    return sorted(path.name for path in Path(folder).rglob("*"))


def test_entries_are_found_by_name_and_the_last_one_wins():
    registry = UnityEnvRegistry()
    first, second = BaseRegistryEntry("a", 1.0, "one"), BaseRegistryEntry("a", None, None)
    registry.register(first)
    registry.register(second)

    assert registry["a"] is second
    assert (list(registry), len(registry)) == (["a"], 1)
    assert (first.identifier, first.expected_reward, first.description) == ("a", 1.0, "one")
    with pytest.raises(KeyError, match=r"The entry X is not present in the registry\."):
        registry["X"]
    with pytest.raises(NotImplementedError, match="not implemented for entry a"):
        first.make()
    registry.clear()
    assert len(registry) == 0


def test_manifests_are_read_when_an_entry_is_asked_for(tmp_path):
    registry = UnityEnvRegistry()
    registry.register(BaseRegistryEntry("Basic", 0.0, None))
    path = tmp_path / "manifest.yaml"
    registry.register_from_yaml(str(path))
    path.write_text(
        "environments:\n"
        "- Basic:\n    expected_reward: 0.93\n    description: |\n      two\n      lines\n"
        "    linux_url: https://x/linux.zip\n    darwin_url: https://x/mac.zip\n"
        "    win_url: https://x/win.zip\n    additional_args: ['--fast']\n"
        "- Other:\n    expected_reward: 1\n    linux_sha256: " + "ab" * 32 + "\n"
    )

    assert list(registry) == ["Basic", "Other"]
    assert registry["Basic"].expected_reward == 0.93
    assert registry["Basic"].description == "two\nlines\n"


def test_a_manifest_that_cannot_be_had_is_asked_for_again(tmp_path):
    registry = UnityEnvRegistry()
    registry.register_from_yaml((tmp_path / "manifest.yaml").as_uri())

    with pytest.raises(FileNotFoundError):
        list(registry)
    write_manifest(tmp_path, "environments:\n- Late: {expected_reward: 1}\n")
    assert list(registry) == ["Late"]


GAME = "environments:\n- Game: {expected_reward: 1}\n"


def test_a_manifest_replaces_what_was_registered_before_it_is_read(tmp_path):
    registry = UnityEnvRegistry()
    registry.register_from_yaml(str(write_manifest(tmp_path, GAME)))
    mine = BaseRegistryEntry("Game", 5.0, None)
    registry.register(mine)
    read = registry["Game"]
    registry.register(mine)

    assert read.expected_reward == 1
    assert registry["Game"] is mine


def test_ones_own_entries_stay_while_a_manifest_cannot_be_had(tmp_path, caplog):
    registry = UnityEnvRegistry()
    missing = (tmp_path / "manifest.yaml").as_uri()
    mine = BaseRegistryEntry("mine", 5.0, None)
    registry.register_from_yaml(missing)
    registry.register(mine)

    assert registry["mine"] is mine
    assert "mine" in registry
    assert (list(registry), len(registry)) == (["mine"], 1)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert missing in caplog.text


def test_an_unknown_name_has_a_manifest_tried_again_whose_failure_is_told(tmp_path):
    registry = UnityEnvRegistry()
    registry.register_from_yaml((tmp_path / "manifest.yaml").as_uri())
    registry.register(BaseRegistryEntry("mine", 5.0, None))
    for ask in (registry.__getitem__, registry.get, lambda name: name in registry):
        with pytest.raises(FileNotFoundError, match=r"manifest\.yaml") as caught:
            ask("Game")
        assert "'Game'" in "".join(caught.value.__notes__)
    write_manifest(tmp_path, GAME)
    before = list(registry)

    assert before == ["mine"]
    assert registry["Game"].expected_reward == 1
    assert list(registry) == ["mine", "Game"]
    with pytest.raises(KeyError, match="The entry Other is not present"):
        registry["Other"]


def test_an_environment_of_pettingzoo_is_imported_once_its_manifest_can_be_had(
    tmp_path, monkeypatch
):
    registry = UnityEnvRegistry()
    monkeypatch.setattr("arkml.envs.llapi.registry.default_registry", registry)
    registry.register_from_yaml((tmp_path / "manifest.yaml").as_uri())
    registry.register(BaseRegistryEntry("mine", 5.0, None))
    own = envs.mine
    with pytest.raises(FileNotFoundError, match=r"manifest\.yaml"):
        _ = envs.ThreeBall
    write_manifest(tmp_path, "environments:\n- 3Ball: {expected_reward: 1}\n")

    assert own.env_id == "mine"
    assert envs.ThreeBall.env_id == "3Ball"
    with pytest.raises(AttributeError, match="no attribute 'Other'"):
        _ = envs.Other


def test_manifests_are_read_though_another_one_cannot_be(tmp_path):
    registry = UnityEnvRegistry()
    registry.register_from_yaml((tmp_path / "nowhere.yaml").as_uri())
    registry.register_from_yaml(str(write_manifest(tmp_path, GAME)))
    found = registry["Game"]

    assert found.expected_reward == 1
    with pytest.raises(FileNotFoundError, match="nowhere"):
        registry["Other"]
    registry.clear()
    assert len(registry) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "is not YAML"),
        ("a: 1", "no list of environments"),
        ("- 1", "no list of environments"),
        ("environments: [1]", "lists 1, not one environment"),
        ("environments: [{A: {}, B: {}}]", "not one environment"),
        ("environments: [{A: 1}]", "is not a name with its fields"),
        ("environments: [{1: {}}]", "is not a name with its fields"),
        ("environments: [{A: {color: red}}]", "unknown field 'color'"),
        ("environments: [{A: {linux_url: 1}}]", "has linux_url: 1"),
        ("environments: [{A: {additional_args: [1]}}]", "arguments that are not text"),
        ("!!python/object/apply:os.system [exit]", "is not YAML"),
        ("environments: 2001-99-99", "is not YAML: '2001-99-99' is not of type 'timestamp'"),
        ("a: &a [1]\nb: [" + "*a," * 100_000 + "]", "is not YAML: it expands to more than"),
        ("environments: ['" + "x" * 5000 + "']", "lists 'xxx.*, not one environment"),
        ("environments: [{A: {" + "x" * 999 + ": 1}}]", "unknown field 'xxx"),
        ("environments: [{A: {tmp_dir: [" + "x" * 5000 + "]}}]", r"has tmp_dir: \['xxx"),
        ("environments: [{" + "x" * 999 + ": 1}]", "is not a name with its fields"),
        ("environments: [" + "x" * (1 << 20), "has more than 1048576 bytes"),
    ],
)
def test_what_is_no_manifest_is_refused(tmp_path, text, message):
    registry = UnityEnvRegistry()
    registry.register_from_yaml(str(write_manifest(tmp_path, text)))

    with pytest.raises(UnityRegistryException, match=message) as refused:
        len(registry)
    assert len(str(refused.value)) < 700


def test_a_long_url_of_a_manifest_is_cut_in_messages(tmp_path):
    for url in (f"ftp://{'x' * 5000}", f"https://{'x' * 5000}.invalid", (tmp_path / "a").as_uri()):
        with pytest.raises((UnityRegistryException, OSError)) as refused:
            download.read(url, 10)
        assert len(str(refused.value)) < 700


@pytest.mark.parametrize("url", ["http://x/a.yaml", "ftp://x/a", "file://host/a.yaml", "data:,a"])
def test_only_https_and_files_of_this_machine_are_read(url):
    with pytest.raises(UnityRegistryException, match="neither an https nor a file URL"):
        download.read(url, 10)


def test_nothing_is_downloaded_when_the_registry_is_imported():
    code = (
        "import sys, socket\n"
        "def refuse(*a): raise SystemExit('connected')\n"
        "socket.socket.connect = refuse\n"
        "import arkml.envs.llapi.registry\n"
        "assert 'grpc' not in sys.modules and 'yaml' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=300)

    assert done.returncode == 0
    assert default_registry._manifests == [
        "https://storage.googleapis.com/mlagents-test-environments/1.1.0/manifest.yaml"
    ]


def test_a_player_is_downloaded_once(packed, tmp_path):
    path, url = packed()
    first = get_local_binary_path("Game", url, str(tmp_path))
    path.unlink()
    second = get_local_binary_path("Game", url, str(tmp_path))

    key = hashlib.md5(url.encode()).hexdigest()
    expected = tmp_path / "ml-agents-binaries" / "binaries" / f"Game-{key}"
    assert first == second == str(expected / "Game" / "Game.x86_64")
    assert stat.S_IMODE(Path(first).stat().st_mode) == 0o755
    assert names(tmp_path / "ml-agents-binaries" / "tmp") == []


def test_a_platform_without_a_player_is_named(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")

    with pytest.raises(FileNotFoundError) as caught:
        entry("https://x/a.zip").make()
    assert str(caught.value) == "The entry Game does not contain a valid url for this platform"


@pytest.mark.parametrize("content", [b"no zip", None])
def test_an_archive_without_a_player_is_not_found(packed, tmp_path, content):
    path, url = packed({"readme": b"text"})
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(FileNotFoundError) as caught:
        get_local_binary_path("Game", url, str(tmp_path))
    assert str(caught.value) == (
        f"Binary not found, make sure {url} is a valid url to "
        "a zip folder containing a valid Unity executable"
    )
    assert names(tmp_path / "ml-agents-binaries" / "tmp") == []


def member(name, *, mode=stat.S_IFREG | 0o644, flags=0):
    info = zipfile.ZipInfo("placeholder")
    info.filename = info.orig_filename = name
    info.external_attr = mode << 16
    info.flag_bits = flags
    return info


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ([member("../evil")], "outside of it"),
        ([member("/etc/evil")], "outside of it"),
        ([member("a/../../evil")], "outside of it"),
        ([member("C:/evil")], "outside of it"),
        ([member("..\\evil")], "outside of it"),
        ([member("link", mode=stat.S_IFLNK | 0o777)], "is not a file"),
        ([member("pipe", mode=stat.S_IFIFO | 0o777)], "is not a file"),
        ([member("a/b"), member("A/b")], "two members of one name"),
        ([member("a"), member("a/b")], "two members of one name"),
        ([member("a"), member("a-b"), member("A/b/c")], "two members of one name"),
        ([member("a/" * 600 + "b")], "has a name of 1201 letters: 'a/a/a.*'"),
    ],
)
def test_hostile_members_are_refused_and_nothing_is_written(tmp_path, members, text):
    path = tmp_path / "archive.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("Game.x86_64", b"")
        for info in members:
            archive.writestr(info, b"/etc/passwd")

    with pytest.raises(UnityRegistryException, match=text):
        get_local_binary_path("Game", path.as_uri(), str(tmp_path / "cache"))
    assert names(tmp_path / "cache") == ["binaries", "ml-agents-binaries", "tmp"]
    assert not (tmp_path / "evil").exists()


def test_the_directory_of_an_archive_has_a_limit(tmp_path):
    path = tmp_path / "game.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(3):
            member = zipfile.ZipInfo(str(number))
            member.comment = bytes(0xFFFF)
            archive.writestr(member, b"")

    limits = ArchiveLimits(directory_bytes=1 << 17)
    with pytest.raises(UnityRegistryException, match="directory has more than 131,072 bytes"):
        get_local_binary_path("Game", path.as_uri(), str(tmp_path / "cache"), limits=limits)


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        (ArchiveLimits(members=1), "has 2 members, more than 1"),
        (ArchiveLimits(expanded_bytes=1000), "unpacks to 2000017 bytes, more than 1000"),
        (ArchiveLimits(ratio=50), "more than 50 times as many"),
        (ArchiveLimits(archive_bytes=100), "has more than 100 bytes"),
    ],
)
def test_archives_have_limits(packed, tmp_path, limits, text):
    _, url = packed({**PLAYER, "Game/Game_Data/level": bytes(2_000_000)}, zipfile.ZIP_DEFLATED)

    with pytest.raises(UnityRegistryException, match=text):
        get_local_binary_path("Game", url, str(tmp_path / "cache"), limits=limits)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA], ids=["bzip2", "lzma"])
def test_an_archive_in_a_format_that_unpacks_without_a_limit_is_refused(packed, tmp_path, method):
    _, url = packed(PLAYER, method)

    with pytest.raises(UnityRegistryException, match=f"a member packed by the method {method}"):
        get_local_binary_path("Game", url, str(tmp_path / "cache"))


def test_a_member_that_lies_about_its_size_is_no_archive(packed, tmp_path):
    path, url = packed({"Game.x86_64": bytes(100_000)}, zipfile.ZIP_DEFLATED)
    data = bytearray(path.read_bytes())
    for at in (data.index(b"PK\x03\x04") + 22, data.index(b"PK\x01\x02") + 24):
        data[at : at + 4] = (10).to_bytes(4, "little")
    path.write_bytes(data)

    with pytest.raises(FileNotFoundError):
        get_local_binary_path("Game", url, str(tmp_path / "cache"))
    assert names(tmp_path / "cache") == ["binaries", "ml-agents-binaries", "tmp"]


def test_a_digest_is_checked_also_for_what_was_downloaded_before(packed, tmp_path):
    path, url = packed()
    cache = str(tmp_path / "cache")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    player = get_local_binary_path("Game", url, cache, sha256=digest.upper())

    with pytest.raises(UnityRegistryException, match=f"has the SHA-256 {digest}, not 00"):
        get_local_binary_path("Game", url, cache, sha256="00")
    path.unlink()
    assert get_local_binary_path("Game", url, cache, sha256=digest) == player


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".", "-x"])
def test_a_name_is_no_path(packed, tmp_path, name):
    with pytest.raises(UnityRegistryException, match="cannot be the name of a folder"):
        get_local_binary_path(name, packed()[1], str(tmp_path))


def test_a_folder_of_somebody_else_is_refused(tmp_path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "ml-agents-binaries").symlink_to(tmp_path / "theirs")

    with pytest.raises(UnityRegistryException, match="belongs to another user"):
        get_tmp_dirs(str(tmp_path))


def test_downloads_follow_redirections_within_https():
    def answer(request):
        if request.url.path == "/a":
            return httpx.Response(302, headers={"location": "/b"})
        if request.url.path == "/plain":
            return httpx.Response(302, headers={"location": "http://x/b"})
        if request.url.path == "/loop":
            return httpx.Response(302, headers={"location": "/loop"})
        if request.url.path == "/b":
            return httpx.Response(200, stream=httpx.ByteStream(b"content"))
        if request.url.path == "/down":
            raise httpx.ConnectError("refused")
        return httpx.Response(404)

    served = httpx.MockTransport(answer)
    target = io.BytesIO()
    digest = download.copy("https://x/a", target, 7, served)

    assert target.getvalue() == b"content"
    assert digest == hashlib.sha256(b"content").hexdigest()
    with pytest.raises(UnityRegistryException, match="more than 6 bytes"):
        download.read("https://x/a", 6, served)
    with pytest.raises(UnityRegistryException, match="http://x/b is neither"):
        download.read("https://x/plain", 7, served)
    with pytest.raises(UnityRegistryException, match="redirects more than 5 times"):
        download.read("https://x/loop", 7, served)
    with pytest.raises(FileNotFoundError, match="answered 404"):
        download.read("https://x/none", 7, served)
    with pytest.raises(ConnectionError, match="could not be read"):
        download.read("https://x/down", 7, served)


@pytest.fixture
def ways(monkeypatch):
    """Pairs of host and proxy of all requests; `far` redirects to 127.0.0.1, which answers."""
    ways = []

    class Transport(httpx.AsyncBaseTransport):
        def __init__(self, proxy=None, **_):
            self.proxy = proxy and str(proxy.url)

        async def handle_async_request(self, request):
            ways.append((request.url.host, self.proxy))
            if request.url.host == "far":
                return httpx.Response(302, headers={"location": "https://127.0.0.1/b"})
            if request.url.path == "/lost":
                raise httpx.ConnectError("refused")
            return httpx.Response(200, stream=httpx.ByteStream(b"content"))

    monkeypatch.setattr("httpx._client.AsyncHTTPTransport", Transport)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    for name in ("NO_PROXY", "no_proxy", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    return ways


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "[::1]", "a.localhost"])
def test_this_machine_is_asked_without_a_proxy(ways, host):
    assert download.read(f"https://{host}/a", 7) == b"content"
    assert ways == [(host.strip("[]"), None)]


def test_a_redirection_to_this_machine_leaves_the_proxy(ways):
    assert download.read("https://far/a", 7) == b"content"
    assert ways == [("far", "http://proxy:3128"), ("127.0.0.1", None)]


@pytest.mark.usefixtures("ways")
def test_a_proxy_is_named_where_a_host_cannot_be_reached():
    with pytest.raises(ConnectionError, match="read: refused; it was asked by the proxy of HTTPS_"):
        download.read("https://near/lost", 7)
    with pytest.raises(ConnectionError, match=r"read: refused$"):
        download.read("https://localhost/lost", 7)


@pytest.mark.parametrize("encoding", ["gzip", "gzip, gzip", "deflate", "br", "zstd", "x"])
def test_a_packed_answer_is_refused_and_never_unpacked(encoding):
    asked = []

    def answer(request):
        asked.append(request.headers["accept-encoding"])
        return httpx.Response(
            200, headers={"content-encoding": encoding}, stream=httpx.ByteStream(b"packed")
        )

    with pytest.raises(UnityRegistryException, match=f"in the encoding '{encoding}'"):
        download.read("https://x/a", 1 << 20, httpx.MockTransport(answer))
    assert asked == ["identity"]


class _Dripping(httpx.AsyncByteStream):
    """A body of a byte now and then, without an end."""

    async def __aiter__(self):
        while True:
            await asyncio.sleep(0.001)
            yield b"x"


@pytest.mark.parametrize("part", ["header", "body"])
def test_an_answer_that_never_ends_is_given_up(monkeypatch, part):
    monkeypatch.setattr(download, "_SECONDS", 0.1)
    monkeypatch.setattr(download, "_RATE", 1 << 60)

    async def answer(_):
        if part == "header":
            await asyncio.Event().wait()
        return httpx.Response(200, stream=_Dripping())

    with pytest.raises(ConnectionError, match="did not arrive in time"):
        download.read("https://x/a", 1 << 40, httpx.MockTransport(answer))


def test_a_download_works_where_an_event_loop_runs():
    async def load():
        return download.read(
            "https://x/a",
            7,
            httpx.MockTransport(lambda _: httpx.Response(200, stream=httpx.ByteStream(b"content"))),
        )

    assert asyncio.run(load()) == b"content"


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnityRegistryException, match="cannot be read: it is not a plain file"):
        download.read((tmp_path / "pipe").as_uri(), 7)
