"""The Host headers that servers answer to."""

import pytest

from arkml.base.host_names import (
    HostRule,
    authority_of,
    bare_host,
    grpc_proxy_options,
    host_in,
    is_loopback,
    listening_authority,
    proxy_note,
    proxy_of,
)


def hosts(*names):
    return [(b"accept", b"*/*"), *((b"host", name.encode()) for name in names)]


@pytest.mark.parametrize(
    "name", ["localhost", "127.0.0.1:80", "[::1]:9000", "LOCALHOST:1", "127.9.9.9"]
)
def test_a_loopback_server_answers_to_loopback_names(name):
    assert HostRule("127.0.0.1", ()).refused(hosts(name)) is None


@pytest.mark.parametrize("names", [["evil.example"], [], ["localhost", "evil.example"], ["a b"]])
def test_a_loopback_server_refuses_other_names(names):
    assert HostRule("127.0.0.1", ()).refused(hosts(*names)) == ", ".join(names)


def test_allowed_names_pass_with_any_port():
    rule = HostRule("127.0.0.1", ["Game.example"])

    assert rule.refused(hosts("game.EXAMPLE:443")) is None
    assert rule.refused(hosts("other.example")) == "other.example"


def test_another_address_answers_to_any_name_unless_there_are_allowed_ones():
    assert HostRule("0.0.0.0", ()).refused(hosts("any.example")) is None
    assert HostRule("0.0.0.0", ["one.example"]).refused(hosts("any.example")) == "any.example"


def test_hosts_are_taken_from_authorities():
    assert host_in("[2001:DB8::1]:80") == "2001:db8::1"
    assert host_in("user@host") == ""
    assert is_loopback("::1")
    assert not is_loopback("10.0.0.1")


@pytest.mark.parametrize(
    ("host", "authority", "reached"),
    [
        ("::1", "[::1]:90", "[::1]:90"),
        ("::", "[::]:90", "[::1]:90"),
        ("0.0.0.0", "0.0.0.0:90", "127.0.0.1:90"),
        ("game.example", "game.example:90", "game.example:90"),
        ("2001:db8::1", "[2001:db8::1]:90", "[2001:db8::1]:90"),
    ],
)
def test_an_authority_has_brackets_around_ipv6(host, authority, reached):
    assert authority_of(host, 90) == authority
    assert listening_authority(host, 90) == reached
    assert bare_host(host) == bare_host(f"[{host}]") == host


@pytest.fixture
def proxies(monkeypatch):
    """Proxies for everything but one host."""
    for name in ("NO_PROXY", "no_grpc_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", "inner.example")


@pytest.mark.parametrize(
    "host",
    [
        "localhost", "LocalHost", "localhost.", "hive.localhost", "127.0.0.1", "127.9.9.9",
        "0.0.0.0", "::1", "::", "::ffff:127.0.0.1", "inner.example",
    ],
)  # fmt: skip
@pytest.mark.usefixtures("proxies")
def test_no_proxy_is_asked_for_this_machine_nor_for_hosts_without_one(host):
    assert proxy_of(host) == proxy_of(host, "https") == ""
    assert proxy_note(authority_of(host, 9000)) == ""


@pytest.mark.usefixtures("proxies")
def test_the_proxy_of_another_host_is_named():
    assert (proxy_of("hive.example"), proxy_of("hive.example", "https")) == (
        "http_proxy",
        "https_proxy",
    )
    assert "the proxy of grpc_proxy" in proxy_note("hive.example:9000")
    assert grpc_proxy_options("hive.example:9000") == []
    for here in ("localhost:9000", "[::1]:9000", "0.0.0.0:9000", "[::]:9000"):
        assert grpc_proxy_options(here) != []
