"""A receiver of OpenTelemetry's protocol: HTTP on loopback, messages of opentelemetry-proto."""

import threading
from collections import defaultdict
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class ReceivedSpan:
    """A span as it arrived; ids in hexadecimal digits, times in nanoseconds."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    began: int
    ended: int
    attributes: dict


class OtlpReceiver:
    """Keeps the spans that are exported to its `endpoint`."""

    def __init__(self):
        self.spans = []
        self._lock = threading.Lock()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                data = self.rfile.read(int(self.headers["content-length"]))
                assert self.path == "/v1/traces"
                assert self.headers["content-type"] == "application/x-protobuf"
                receiver.take(ExportTraceServiceRequest.FromString(data))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def take(self, request):
        for resource in request.resource_spans:
            of_service = {one.key: _value(one.value) for one in resource.resource.attributes}
            for scope in resource.scope_spans:
                spans = [_span(of_service["service.name"], span) for span in scope.spans]
                with self._lock:
                    self.spans += spans

    def traces(self):
        """The spans of each trace, by name; those that come twice as a list of all."""
        found = defaultdict(lambda: defaultdict(list))
        with self._lock:
            for span in self.spans:
                found[span.trace][span.name].append(span)
        return {trace: dict(spans) for trace, spans in found.items()}

    def close(self):
        self._server.shutdown()
        self._server.server_close()


def _span(service, span):
    attributes = {one.key: _value(one.value) for one in span.attributes}
    ids = (span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex())
    times = (span.start_time_unix_nano, span.end_time_unix_nano)
    return ReceivedSpan(service, span.name, *ids, *times, attributes)


def _value(value):
    return getattr(value, value.WhichOneof("value"))
