"""Addresses of a server of trials and of a program's own services."""

from __future__ import annotations

from typing import Protocol, TypeAlias

from arkml.trials.core.error import TrialError
from arkml.trials.core.parameters import GRPC, TrialEndpoint
from arkml.trials.sdk.implementations import RegisteredImplementations
from arkml.trials.service import TrialServices

_NO_TLS = (
    "gRPC is used without TLS here: keep it on this machine, or behind a proxy that has the"
    " certificate"
)


class _NotUsed:
    """An attribute for TLS that accepts only `unset`."""

    def __init__(self, unset: bool | None = None) -> None:
        self._unset = unset

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, owner: object, owners: type) -> bool | None:
        return self._unset

    def __set__(self, owner: object, value: object) -> None:
        if value:
            raise TrialError(f"{self._name}: {_NO_TLS}")


class Endpoint:
    """
    The address of a server of trials, `grpc://HOST:PORT`; for example `grpc://localhost:9000`.

    Its other attributes exist for programs that were written for Cogment's SDK. gRPC is used
    without TLS here, so setting `use_ssl` or a file raises TrialError.
    """

    __slots__ = ("url",)

    use_ssl: _NotUsed = _NotUsed(unset=False)
    private_key: _NotUsed = _NotUsed()
    root_certificates: _NotUsed = _NotUsed()
    certificate_chain: _NotUsed = _NotUsed()

    def __init__(self, url: str = "cogment://discover", use_ssl: bool = False) -> None:
        self.url: str = url
        self.use_ssl = use_ssl

    def __repr__(self) -> str:
        return f"Endpoint({self.url!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Endpoint) and self.url == other.url

    def __hash__(self) -> int:
        return hash(self.url)

    def using_ssl(self) -> bool:
        """Return False: gRPC is used without TLS."""
        return False

    def set_from_files(
        self,
        private_key_file: str | None = None,
        root_certificates_file: str | None = None,
        certificate_chain_file: str | None = None,
    ) -> None:
        """
        Accept no files, as there is no TLS.

        Args:
            private_key_file: None.
            root_certificates_file: None.
            certificate_chain_file: None.

        Raises:
            TrialError: A file is given.

        """
        self.private_key = private_key_file
        self.root_certificates = root_certificates_file
        self.certificate_chain = certificate_chain_file

    @property
    def authority(self) -> str:
        """`HOST:PORT`. Raises TrialError if the URL is not of this form."""
        address = TrialEndpoint.parse(self.url)
        if address.scheme != GRPC:
            raise TrialError(f"endpoint {self.url!r} is not that of a server: grpc://HOST:PORT")
        return address.authority


class ServedEndpoint:
    """
    The port on which a context serves its implementations, 0 for a free one.

    There is no login, so `host` is the loopback interface by default (decision 18); `"[::]"` means
    all interfaces. Raises TrialError for an invalid port.
    """

    __slots__ = ("host", "port")

    private_key_certificate_chain_pairs: _NotUsed = _NotUsed()
    root_certificates: _NotUsed = _NotUsed()

    def __init__(self, port: int | str = 0, host: str = "127.0.0.1") -> None:
        if not (str(port).isdecimal() and int(port) < 1 << 16):
            raise TrialError(f"port {port!r} is not a number from 0 to 65535")
        self.port: int = int(port)
        self.host: str = host

    def __repr__(self) -> str:
        return f"ServedEndpoint(port={self.port}, host={self.host!r})"

    def using_ssl(self) -> bool:
        """Return False: gRPC is served without TLS."""
        return False


class LocalServer(TrialServices, Protocol):
    """A server of trials in this process, which can be given in place of an endpoint."""

    def register(self, implementations: RegisteredImplementations) -> None:
        """
        Make implementations available to the server's trials at the endpoint `local://`.

        Raises TrialError if it cannot.
        """


ServerPlace: TypeAlias = Endpoint | str | LocalServer
"""A server: an Endpoint, its URL as text, or a server in this process."""
