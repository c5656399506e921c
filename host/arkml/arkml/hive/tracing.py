"""Traces by OpenTelemetry, recorded if the variable OTEL_EXPORTER_OTLP_ENDPOINT is set."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from arkml.base.host_names import is_this_machine
from arkml.base.loggers import SafeLogger

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span
    from requests import Session

HEADER = "traceparent"

Attributes = Mapping[str, str | int]
"""Facts about the work of a span, by their names."""

Side = Literal["arkml-host", "arkml-hive"]
"""The name of the service whose spans they are, unless OTEL_SERVICE_NAME is set."""

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_CREDENTIALS = (
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER",
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_TRACES_CREDENTIAL_PROVIDER",
)
"""Variables that name a session of their own."""

_SHARE = 0.001
"""The share of bodies that are traced, unless OTEL_TRACES_SAMPLER is set."""

_FLUSH_SECONDS = 1.5
"""Seconds that a process that ends waits for the receiver of its last spans."""

_LEFT_OUT, _LENGTH = tuple("02468ace"), 55
"""The last digit and the length of the header of a trace that is not recorded."""

log = SafeLogger(__name__)


class Tracing:
    """
    The recorder of this process's spans, which exports them in the background.

    If the application has set up OpenTelemetry itself, that is left alone.
    """

    def __init__(self, side: Side) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased
        from opentelemetry.trace import NonRecordingSpan, SpanContext
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        sampler = os.environ.get("OTEL_TRACES_SAMPLER")
        self._share = 1.0 if sampler else _share(os.environ.get("OTEL_TRACES_SAMPLER_ARG"))
        random = Random()  # not that of the application, which may have seeded it
        self._chance = random.random
        # One for all: its id is not recorded anywhere, and a body has a few µs for this.
        bits = random.getrandbits
        self._left_out = NonRecordingSpan(SpanContext(bits(128), bits(64), is_remote=False))
        self._left_out_block = nullcontext(self._left_out)
        self._left_out_header = _header_of(self._left_out)
        named = {} if os.environ.get("OTEL_SERVICE_NAME") else {SERVICE_NAME: side}
        self._provider: TracerProvider = TracerProvider(
            sampler=None if sampler else ParentBased(ALWAYS_ON),
            resource=Resource.create(named),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(session=_session())))
        self._follows_parents = not sampler or sampler.lower().startswith("parentbased")
        self._tracer = self._provider.get_tracer("arkml")
        self._propagator = TraceContextTextMapPropagator()
        atexit.register(self.flush)

    def start(
        self,
        name: str,
        *,
        kind: Literal["client", "server", "internal"] = "internal",
        parent: str | Span = "",
        attributes: Attributes | None = None,
    ) -> Span:
        """
        Start a span, which the caller ends.

        Args:
            name: Name of the span.
            kind: Whether the span is a request sent, a request answered, or neither.
            parent: Another span, or the header `traceparent` of a request. Empty begins a new
                trace, which is recorded or not as the sampler in OTEL_TRACES_SAMPLER decides, by
                default at random.
            attributes: Attributes of the span by name.

        """
        if not parent and self._chance() >= self._share:
            return self._left_out
        return self._start(name, kind, parent, attributes)

    def span(
        self,
        name: str,
        *,
        kind: Literal["client", "server", "internal"] = "internal",
        parent: str | Span = "",
        attributes: Attributes | None = None,
    ) -> AbstractContextManager[Span]:
        """
        Record the time of a block as a span, and the error that ends it.

        Args:
            name: Name of the span.
            kind: Whether the span is a request sent, a request answered, or neither.
            parent: Another span, or the header `traceparent` of a request; empty for a new trace.
            attributes: Attributes of the span by name.

        """
        if not parent and self._chance() >= self._share:
            return self._left_out_block
        return _block_of(self._start(name, kind, parent, attributes))

    def is_left_out(self, header: str) -> bool:
        """Return whether the header `traceparent` says that its trace is not recorded."""
        return self._follows_parents and header[-1:] in _LEFT_OUT and len(header) == _LENGTH

    def header(self, span: Span) -> str:
        """
        Return the header `traceparent`, by which another process adds spans to a span's trace.
        """
        return self._left_out_header if span is self._left_out else _header_of(span)

    def flush(self, seconds: float = _FLUSH_SECONDS) -> None:
        """Export all ended spans, for at most `seconds`, so that no receiver delays an exit."""
        self._run(self._provider.force_flush, seconds)

    def close(self, seconds: float = _FLUSH_SECONDS) -> None:
        """Export all ended spans, for at most `seconds`, and ignore later ones."""
        atexit.unregister(self.flush)
        self._run(self._provider.shutdown, seconds)

    def _start(
        self,
        name: str,
        kind: Literal["client", "server", "internal"],
        parent: str | Span,
        attributes: Attributes | None,
    ) -> Span:
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind, set_span_in_context

        if isinstance(parent, str):
            context = self._propagator.extract({HEADER: parent}, Context()) if parent else Context()
        else:
            context = set_span_in_context(parent, Context())
        return self._tracer.start_span(
            name, context, kind=SpanKind[kind.upper()], attributes=attributes
        )

    def _run(self, work: Callable[[], object], seconds: float) -> None:
        """Call a function that may wait for the receiver, for at most `seconds`."""
        working = threading.Thread(target=work, name="arkml-traces", daemon=True)
        working.start()
        working.join(seconds)


@contextmanager
def _block_of(span: Span) -> Iterator[Span]:
    """End a span with a block, and note the error that ends it."""
    from opentelemetry.trace import StatusCode

    try:
        yield span
    except BaseException as error:
        span.set_status(StatusCode.ERROR, f"{type(error).__name__}: {error}")
        raise
    finally:
        span.end()


def _header_of(span: Span) -> str:
    context = span.get_span_context()
    flags = int(context.trace_flags)
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{flags:02x}"


def trace_id(span: Span) -> str:
    """Return the trace of a span as 32 hexadecimal digits, empty if it is not recorded."""
    return f"{span.get_span_context().trace_id:032x}" if span.is_recording() else ""


@cache
def tracing(side: Side) -> Tracing | None:
    """
    Return the recorder of the spans of this process, None while tracing is off.

    Tracing is off unless the environment names an endpoint and OpenTelemetry is installed. If it is
    not, one sentence is logged.
    """
    if not is_wanted(os.environ):
        return None
    try:
        return Tracing(side)
    except ImportError as error:
        log.warning(
            "OTEL_EXPORTER_OTLP_ENDPOINT is set and OpenTelemetry is not installed, so there are no"
            " traces: pip install 'arkml[otel]' (%s)", error,
        )  # fmt: skip
    except ValueError as error:
        log.warning("there are no traces, for a variable of OpenTelemetry is invalid: %s", error)
    return None


def _session() -> Session | None:
    """Return a session without proxies for a receiver on this machine, None for a remote one."""
    endpoint = next(filter(None, map(os.environ.get, reversed(_ENDPOINTS))), "")
    if any(map(os.environ.get, _CREDENTIALS)) or not is_this_machine(
        urlsplit(endpoint).hostname or ""
    ):
        return None
    from requests import Session

    session = Session()
    session.trust_env = False
    return session


def is_wanted(environment: Mapping[str, str]) -> bool:
    """Return whether environment variables ask for traces."""
    is_disabled = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    exporter = environment.get("OTEL_TRACES_EXPORTER", "otlp")
    return any(map(environment.get, _ENDPOINTS)) and not is_disabled and exporter != "none"


def _share(text: str | None) -> float:
    """Return the share of traces in a text, or the default for None and for an invalid share."""
    if text is None:
        return _SHARE
    with suppress(ValueError):
        if 0 <= float(text) <= 1:
            return float(text)
    log.warning("OTEL_TRACES_SAMPLER_ARG is %r, not a share from 0 to 1: %g is taken", text, _SHARE)
    return _SHARE
