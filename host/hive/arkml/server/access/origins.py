"""Origins of requests: their hosts, the pages that make them, and the proxies in between."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

from starlette.types import Scope

from arkml.base.host_names import HostRule
from arkml.errors import UsageError
from arkml.hive.address import Address
from arkml.server.access.callers import SAFE_METHODS
from arkml.server.serve_options import ServeOptions

OWN_HEADER = b"x-arkml"
"""A header that no page elsewhere can send: with it, a browser asks for leave first."""

FORWARDED = (b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto")
"""The headers in which a proxy reports the original request."""

_JSON = b"application/json"
_PORTS = {"http": 80, "https": 443}

_Origin = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class RequestOrigin:
    """
    The origin of one request: its client, and the URL that a browser has for the hive.

    Attributes:
        method: The HTTP method.
        headers: The headers by their names in lower case.
        client: The address of the client, as a trusted proxy reports it if there is one.
        hosts: The hosts that the request names.
        is_secure: Whether the browser uses HTTPS.
        is_forwarded: Whether a proxy, trusted or not, has passed the request on.
        origins: The values of the header Origin.
        prefix: The path below which the client sees the hive.

    """

    method: str
    headers: Mapping[bytes, bytes]
    client: str
    hosts: tuple[str, ...]
    is_secure: bool
    is_forwarded: bool
    origins: tuple[str, ...]
    prefix: str = ""

    @property
    def is_from_page(self) -> bool:
        """True for a request that a web page makes, as the headers of every browser say."""
        return bool(self.origins) or b"sec-fetch-site" in self.headers


class OriginRules:
    """
    The rules of a hive for hosts and pages. Raises UsageError for options that it cannot read.

    Headers in which a proxy reports the original request, such as X-Forwarded-Host, are believed
    from trusted proxies only.

    Attributes:
        hosts: The Host headers that the hive accepts.
        prefix: The path of the public URL, without a slash at its end.

    """

    def __init__(self, options: ServeOptions) -> None:
        self._public = _public(options.public_url)
        allowed = (*options.allow_hosts, *([self._public.host] if self._public else ()))
        self.hosts = HostRule(options.host, allowed)
        self.prefix = self._public.prefix if self._public else ""
        self._proxies = _networks(options.trusted_proxies)

    def read(self, scope: Scope) -> RequestOrigin:
        """Return the origin of a request, from its ASGI scope."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        peer = (scope.get("client") or ("", 0))[0]
        client, scheme = peer, scope["scheme"]
        hosts = _all_of(scope, b"host")
        if self._is_trusted(peer):
            client = self._client_of(_listed(_all_of(scope, b"x-forwarded-for")), peer)
            scheme = _last(headers, b"x-forwarded-proto").lower() or scheme
            forwarded = _last(headers, b"x-forwarded-host")
            hosts = (forwarded,) if forwarded else hosts
        origins, is_secure, prefix = _all_of(scope, b"origin"), scheme == "https", ""
        if self._public is not None and self._is_public(scheme, hosts, origins):
            is_secure, prefix = self._public.is_secure, self._public.prefix
        return RequestOrigin(
            method=scope["method"],
            headers=headers,
            client=client,
            hosts=hosts,
            is_secure=is_secure,
            is_forwarded=any(name in headers for name in FORWARDED),
            origins=origins,
            prefix=prefix,
        )

    def host_problem(self, request: RequestOrigin) -> str:
        """Return why the hive does not answer for the host of a request, empty if it does."""
        refused = self.hosts.refused((b"host", name.encode("latin-1")) for name in request.hosts)
        if refused is None:
            return ""
        return (
            f"this hive does not answer requests for {refused!r}: --allow-host adds a name besides"
            " localhost, --public-url the address that clients know"
        )

    def origin_problem(self, request: RequestOrigin) -> str:
        """Return why the page that makes a request is a foreign one, empty if it is not."""
        if not request.origins:
            return ""
        given = _parse_origin(request.origins[0]) if len(request.origins) == 1 else None
        if given is not None and given in self._own(request):
            return ""
        shown = ", ".join(request.origins)[:200]
        return (
            f"this hive does not answer pages of {shown!r}: --allow-host names a host of its own,"
            " --public-url the address at which a proxy serves it"
        )

    def _own(self, request: RequestOrigin) -> list[_Origin]:
        """Return the origins that pages of the hive have."""
        scheme = "https" if request.is_secure else "http"
        hosts = [host for host in request.hosts if self.hosts.is_own(host)]
        own = [_parse_origin(f"{scheme}://{host}") for host in hosts]
        return [one for one in (*own, self._public_origin) if one is not None]

    @property
    def _public_origin(self) -> _Origin | None:
        public = self._public
        if public is None:
            return None
        return "https" if public.is_secure else "http", public.host.lower(), public.port

    def _is_public(self, scheme: str, hosts: Sequence[str], origins: Sequence[str]) -> bool:
        """Return whether a client has reached the hive at its public URL."""
        if any(_parse_origin(one) == self._public_origin for one in origins):
            return True
        public = self._public_origin
        schemes = {scheme, public[0]} if public else {scheme}  # a proxy ends TLS
        return any(_parse_origin(f"{one}://{host}") == public for one in schemes for host in hosts)

    def _is_trusted(self, address: str) -> bool:
        if not self._proxies:
            return False
        try:
            parsed = ip_address(address)
        except ValueError:
            return False
        mapped = getattr(parsed, "ipv4_mapped", None)
        return any(one in network for network in self._proxies for one in (parsed, mapped) if one)

    def _client_of(self, addresses: Sequence[str], peer: str) -> str:
        """Return the last address that does not belong to a trusted proxy."""
        return next((one for one in reversed(addresses) if not self._is_trusted(one)), peer)


def browser_problem(request: RequestOrigin, *, by_cookie: bool) -> str:
    """
    Return why a request without a token of its own is refused, empty if it is accepted.

    Such a request has the cookie of a session (`by_cookie`), or comes to a hive that needs no
    token. A page of another origin may not make it. A page of the hive may change something only by
    JSON with the header X-Arkml, which forms and images cannot send. A program that is not a
    browser sends neither Origin nor Sec-Fetch-Site; without a cookie it may do everything.
    """
    site = request.headers.get(b"sec-fetch-site", b"").decode("latin-1")
    changes = request.method not in SAFE_METHODS
    if site and site != "same-origin" and (changes or site != "none"):
        return f"this request comes from another page (Sec-Fetch-Site: {site:.20})"
    if not changes or not (by_cookie or request.is_from_page):
        return ""
    if not request.is_from_page:
        return "a request by cookie says where it comes from: Sec-Fetch-Site, or Origin"
    if not has_own_header(request):
        return "a page changes things by JSON with the header X-Arkml: 1"
    return ""


def has_own_header(request: RequestOrigin) -> bool:
    """Return whether a request has the content type of JSON, and the header X-Arkml."""
    kind = request.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    return kind == _JSON and request.headers.get(OWN_HEADER) == b"1"


def _public(text: str) -> Address | None:
    """Return the public URL, None for an empty text. Raises UsageError."""
    if not text:
        return None
    error = UsageError(f"--public-url {text}: it takes a URL, such as https://hive.example/arkml")
    if "://" not in text:
        raise error
    try:
        return Address.parse(text)
    except UsageError:
        raise error from None


def _networks(texts: Iterable[str]) -> tuple[IPv4Network | IPv6Network, ...]:
    networks = []
    for text in texts:
        try:
            networks.append(ip_network(text, strict=False))
        except ValueError:
            raise UsageError(
                f"--trusted-proxy {text}: it takes an address, such as 10.0.0.7, or a network"
            ) from None
    return tuple(networks)


def _parse_origin(text: str) -> _Origin | None:
    """Return scheme, host and port of an origin, None for text that is not one."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return None
    is_bare = not (parts.path or parts.query or parts.fragment or "@" in parts.netloc)
    if parts.scheme not in _PORTS or not parts.hostname or not is_bare:
        return None
    return parts.scheme, parts.hostname, port or _PORTS[parts.scheme]


def _all_of(scope: Scope, name: bytes) -> tuple[str, ...]:
    return tuple(value.decode("latin-1") for key, value in scope["headers"] if key == name)


def _listed(values: Sequence[str]) -> list[str]:
    """Return the parts of values with commas."""
    return [part.strip() for value in values for part in value.split(",") if part.strip()]


def _last(headers: Mapping[bytes, bytes], name: bytes) -> str:
    """Return the part of a header that the last proxy has written, empty without one."""
    return headers.get(name, b"").decode("latin-1").rpartition(",")[2].strip()
