"""Hosts, origins and proxies of requests, and what pages may ask for."""

import pytest

from arkml.errors import UsageError
from arkml.server.access.origins import OriginRules, browser_problem
from arkml.server.serve_options import ServeOptions

JSON = {"content-type": "application/json", "x-arkml": "1"}


def asked(
    method="GET", headers=(), client="127.0.0.1", scheme="http", host="localhost:12356",
    bound="127.0.0.1", **options
):  # fmt: skip
    """The rules of a hive with some options, and a request as they read it."""
    pairs = headers.items() if isinstance(headers, dict) else headers
    listed = [*([("host", host)] if host is not None else []), *pairs]
    scope = {
        "type": "http",
        "method": method,
        "scheme": scheme,
        "client": (client, 4),
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in listed],
    }
    rules = OriginRules(ServeOptions(None, host=bound, **options))
    return rules, rules.read(scope)


@pytest.mark.parametrize(
    ("origin", "host", "is_own"),
    [
        ("http://localhost:12356", "localhost:12356", True),
        ("http://127.0.0.1:12356", "127.0.0.1:12356", True),
        ("http://[::1]:12356", "[::1]:12356", True),
        ("http://localhost", "localhost", True),
        ("http://localhost:80", "localhost", True),
        ("http://LOCALHOST:12356", "localhost:12356", True),
        ("http://localhost:12357", "localhost:12356", False),
        ("http://127.0.0.1:12356", "localhost:12356", False),
        ("https://localhost:12356", "localhost:12356", False),
        ("http://evil.example", "localhost:12356", False),
        ("http://localhost:12356.evil.example", "localhost:12356", False),
        ("http://localhost:12356/", "localhost:12356", False),
        ("http://a@localhost:12356", "localhost:12356", False),
        ("null", "localhost:12356", False),
        ("", "localhost:12356", False),
        ("http://localhost:12356 http://localhost:12356", "localhost:12356", False),
        ("file://", "localhost", False),
        ("http://localhost:port", "localhost", False),
    ],
)
def test_a_page_is_the_hives_own_if_it_has_its_origin(origin, host, is_own):
    rules, request = asked(headers={"origin": origin}, host=host)

    assert (rules.origin_problem(request) == "") is is_own


@pytest.mark.parametrize(
    ("host", "options", "is_own"),
    [
        ("10.0.0.7:12356", {}, True),
        ("localhost:12356", {}, True),
        ("gpu-box:12356", {}, False),
        ("gpu-box:12356", {"allow_hosts": ("gpu-box",)}, True),
        ("gpu-box:12356", {"public_url": "http://gpu-box:12356"}, True),
    ],
)
def test_a_page_has_to_have_a_name_that_no_page_of_others_can_have(host, options, is_own):
    """A page of others may have its own name resolve to the address of the hive."""
    headers = {"origin": f"http://{host}"}
    rules, request = asked(headers=headers, **{"host": host, **options}, bound="0.0.0.0")

    assert rules.host_problem(request) == ""
    assert (rules.origin_problem(request) == "") is is_own


def test_a_request_with_two_origins_is_foreign():
    own = ("origin", "http://localhost:12356")
    rules, request = asked(headers=[own, own])

    assert "does not answer pages of" in rules.origin_problem(request)


def test_a_hive_behind_a_proxy_has_its_public_origin_as_well():
    options = {"public_url": "https://hive.example/arkml", "token": "t"}
    page = {"origin": "https://hive.example"}
    rules, request = asked(headers=page, host="127.0.0.1:12356", **options)
    _, named = asked(host="hive.example", **options)
    _, direct = asked(**options)

    assert rules.origin_problem(request) == ""
    assert (request.is_secure, request.prefix) == (True, "/arkml")
    assert (named.is_secure, named.prefix) == (True, "/arkml")
    assert (direct.is_secure, direct.prefix) == (False, "")
    for foreign in ("http://hive.example", "https://hive.example:444", "https://x.hive.example"):
        rules, request = asked(headers={"origin": foreign}, host="127.0.0.1:12356", **options)
        assert "--public-url the address" in rules.origin_problem(request)


def test_the_host_is_one_of_loopbacks_an_allowed_one_or_the_public_one():
    options = {"public_url": "https://hive.example", "allow_hosts": ("other.example",)}
    hosts = ("localhost", "hive.example", "hive.example:443", "other.example", "[::1]:5")
    for host in hosts:
        rules, request = asked(host=host, **options)
        assert rules.host_problem(request) == ""
    for host in ("evil.example", "x.hive.example", "", None):
        rules, request = asked(host=host, **options)
        assert "--allow-host adds a name" in rules.host_problem(request)


FORWARDED = {
    "x-forwarded-for": "192.0.2.9, 198.51.100.1, 10.0.0.8",
    "x-forwarded-host": "evil.example, hive.example",
    "x-forwarded-proto": "https",
}


def test_what_a_proxy_passes_on_is_believed_from_a_trusted_one_alone():
    options = {"trusted_proxies": ("10.0.0.0/8",), "allow_hosts": ("hive.example",)}
    _, trusted = asked(headers=FORWARDED, client="10.0.0.7", **options)
    _, mapped = asked(headers=FORWARDED, client="::ffff:10.0.0.7", **options)
    _, other = asked(headers=FORWARDED, client="192.0.2.7", **options)
    _, untold = asked(headers=FORWARDED, client="10.0.0.7", allow_hosts=("hive.example",))

    assert (trusted.client, trusted.hosts) == ("198.51.100.1", ("hive.example",))
    assert trusted.is_secure
    assert (mapped.client, mapped.is_secure) == ("198.51.100.1", True)
    for request in (other, untold):
        assert request.hosts == ("localhost:12356",)
        assert not request.is_secure
        assert request.is_forwarded
    assert (other.client, untold.client) == ("192.0.2.7", "10.0.0.7")


def test_a_trusted_proxy_that_says_nothing_is_a_client():
    _, request = asked(client="10.0.0.7", trusted_proxies=("10.0.0.7",))

    assert (request.client, request.hosts) == ("10.0.0.7", ("localhost:12356",))
    assert (request.is_secure, request.is_forwarded) == (False, False)


def test_a_page_behind_a_trusted_proxy_with_tls_is_the_hives_own():
    options = {"trusted_proxies": ("10.0.0.7",), "allow_hosts": ("hive.example",)}
    headers = {**FORWARDED, "origin": "https://hive.example"}
    rules, request = asked(headers=headers, client="10.0.0.7", **options)
    _, plain = asked(headers=headers, client="10.0.0.8", **options)

    assert rules.origin_problem(request) == ""
    assert rules.origin_problem(plain) != ""


@pytest.mark.parametrize(
    "text", ["hive.example", "ftp://x", "https://", "https://a?b", "https://a/../b"]
)
def test_a_public_url_is_one(text):
    with pytest.raises(UsageError, match=r"--public-url .*: it takes a URL"):
        OriginRules(ServeOptions(None, public_url=text))


@pytest.mark.parametrize("text", ["proxy", "10.0.0.1/99", ""])
def test_a_trusted_proxy_is_an_address(text):
    with pytest.raises(UsageError, match=r"--trusted-proxy .*: it takes an address"):
        OriginRules(ServeOptions(None, trusted_proxies=(text,)))


SAME, CROSS, SITE = (
    {"sec-fetch-site": site} for site in ("same-origin", "cross-site", "same-site")
)
TYPED = {"sec-fetch-site": "none"}
OWN = {"origin": "http://localhost:12356"}


@pytest.mark.parametrize(
    ("method", "headers", "by_cookie", "open_hive"),
    [
        # method, headers: may it pass by cookie, and at a hive that needs no token
        ("GET", {}, True, True),  # over plain HTTP browsers may send neither header
        ("GET", SAME, True, True),
        ("GET", TYPED, True, True),
        ("GET", OWN, True, True),
        ("GET", CROSS, False, False),
        ("GET", SITE, False, False),
        ("POST", {}, False, True),  # a program, which has no cookie
        ("POST", JSON, False, True),
        ("POST", SAME, False, False),
        ("POST", SAME | JSON, True, True),
        ("POST", OWN, False, False),
        ("POST", OWN | JSON, True, True),
        ("POST", OWN | JSON | {"content-type": "Application/JSON; charset=utf-8"}, True, True),
        ("POST", OWN | JSON | {"content-type": "text/plain"}, False, False),
        ("POST", OWN | {"content-type": "application/json"}, False, False),
        ("POST", TYPED | JSON, False, False),
        ("POST", CROSS | JSON, False, False),
        ("DELETE", SITE | OWN | JSON, False, False),
        ("DELETE", SAME | JSON, True, True),
        ("PUT", SAME, False, False),
    ],
)
def test_a_request_without_a_token_comes_from_the_hives_own_page(
    method, headers, by_cookie, open_hive
):
    _, request = asked(method, headers)
    found = [browser_problem(request, by_cookie=cookie) == "" for cookie in (True, False)]

    assert found == [by_cookie, open_hive]
