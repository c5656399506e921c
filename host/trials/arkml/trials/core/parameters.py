"""Trial parameters: their checks and defaults, and the endpoints that they name."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from ipaddress import IPv6Address
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from arkml.base.host_names import authority_of
from arkml.trials.core.error import TrialError
from arkml.trials.wire.common_pb2 import ActorParams, TrialParams

ENVIRONMENT_NAME: Final = "env"
"""Default name of an environment."""

MOST_ACTORS = 4_096
MOST_PROPERTIES = 256
RESERVED = "__"
"""Prefix of property names that the server reserves."""

DEFAULT_INACTIVITY = 30
"""Default `max_inactivity` in seconds: an idle trial is cut off after it."""

LEAST_BUFFERED_TICKS = 2

GRPC: Final = "grpc"
CLIENT: Final = "client"
LOCAL: Final = "local"

_FORMS = "grpc://HOST:PORT, cogment://client for actors that join, or local:// in this process"


class TrialEndpoint(NamedTuple):
    """
    A checked endpoint, for example `grpc://localhost:9000`.

    `scheme` is GRPC with a host and a port (localhost if the text names no host), CLIENT for actors
    that join by themselves, or LOCAL for implementations registered with the server itself.
    """

    scheme: str
    host: str = ""
    port: int = 0

    @classmethod
    def parse(cls, text: str) -> TrialEndpoint:
        """Return the endpoint that `text` names. Raises TrialError for another text."""
        if text in ("cogment://client", "client"):
            return cls(CLIENT)
        if text == "local://":
            return cls(LOCAL)
        if text.startswith("cogment://discover"):
            raise TrialError(f"endpoint {text!r} asks for a directory, of which there is none here")
        try:
            parts = urlsplit(text)
            host, port = parts.hostname, parts.port
            if parts.netloc.startswith(":"):
                host = "localhost"
        except ValueError:
            host, port, parts = None, None, urlsplit("")
        is_bare = text == f"grpc://{parts.netloc}" and not re.search(r"[@\s]", text)
        if parts.scheme != "grpc" or not host or not port or not is_bare:
            raise TrialError(f"endpoint {text!r} is not one of: {_FORMS}{_hint(text)}")
        return cls(GRPC, host, port)

    @property
    def authority(self) -> str:
        """`HOST:PORT`, with brackets around an IPv6 address."""
        return authority_of(self.host, self.port)


def checked(params: TrialParams, classes: Sequence[str] | None = None) -> TrialParams:
    """
    Return a copy of parameters with defaults filled in.

    `classes` are the known actor classes, None if any is. Raises TrialError, which names the value,
    for parameters that no trial can have.
    """
    params, copy = TrialParams(), params
    params.CopyFrom(copy)
    environment = params.environment
    environment.name = environment.name or ENVIRONMENT_NAME
    _check_environment(params)
    if not params.actors:
        raise TrialError("the parameters have no actors: a trial needs at least one")
    if len(params.actors) > MOST_ACTORS:
        raise TrialError(
            f"the parameters have {len(params.actors)} actors, more than {MOST_ACTORS}"
        )
    names = {environment.name}
    for actor in params.actors:
        _check_actor(actor, classes)
        if actor.name in names:
            of = "the environment" if actor.name == environment.name else "another actor"
            raise TrialError(f"actor {actor.name!r} has the name of {of}")
        names.add(actor.name)
    _check_properties(params)
    _check_datalog(params.datalog.endpoint)
    params.nb_buffered_ticks = max(params.nb_buffered_ticks, LEAST_BUFFERED_TICKS)
    return params


def _check_environment(params: TrialParams) -> None:
    environment = params.environment
    if not environment.endpoint:
        raise TrialError(f"environment {environment.name!r} has no endpoint")
    if TrialEndpoint.parse(environment.endpoint).scheme == CLIENT:
        raise TrialError(
            f"environment {environment.name!r} has the endpoint {environment.endpoint!r}, which"
            " only actors may have: give it grpc://HOST:PORT"
        )
    _check_word("the name of an environment", environment.name)


def _check_datalog(endpoint: str) -> None:
    if endpoint and TrialEndpoint.parse(endpoint).scheme != GRPC:
        raise TrialError(
            f"the datalog has the endpoint {endpoint!r}: it is called at grpc://HOST:PORT"
        )


def _check_actor(actor: ActorParams, classes: Sequence[str] | None) -> None:
    _check_word("the name of an actor", actor.name)
    _check_word("the class of an actor", actor.actor_class)
    if classes is not None and actor.actor_class not in classes:
        known = ", ".join(classes) or "none"
        raise TrialError(
            f"actor {actor.name!r} has the unknown class {actor.actor_class!r}; known: {known}"
        )
    if not actor.endpoint:
        raise TrialError(f"actor {actor.name!r} has no endpoint")
    TrialEndpoint.parse(actor.endpoint)
    for name in ("initial_connection_timeout", "response_timeout"):
        seconds = getattr(actor, name)
        if not (math.isfinite(seconds) and seconds >= 0):
            raise TrialError(f"{name} of actor {actor.name!r} is {seconds}, not seconds >= 0")
    if actor.HasField("default_action") and not actor.optional:
        actor.ClearField("default_action")  # a required actor is never replaced


def _check_word(what: str, word: str) -> None:
    if not word or word.strip() != word or not word.isprintable() or "*" in word or "," in word:
        raise TrialError(
            f"{word!r} cannot be {what}: it needs printable characters without '*', ',' and"
            " spaces around it"
        )


def _check_properties(params: TrialParams) -> None:
    if len(params.properties) > MOST_PROPERTIES:
        raise TrialError(
            f"the parameters have {len(params.properties)} properties, more than {MOST_PROPERTIES}"
        )
    for name in params.properties:
        if name.startswith(RESERVED):
            raise TrialError(f"property {name!r} begins with {RESERVED!r}, which is reserved")


def _hint(text: str) -> str:
    """Return a hint for an IPv6 address without brackets, and an empty text otherwise."""
    host, _, port = text.removeprefix("grpc://").rpartition(":")
    try:
        IPv6Address(host)
    except ValueError:
        return ""
    return f"; an IPv6 address has brackets: grpc://[{host}]:{port}" if port.isdecimal() else ""
