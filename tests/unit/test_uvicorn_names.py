"""The parts of uvicorn that our connections use, most of which are not its public interface."""

import ast
import inspect
import re
import textwrap

import pytest
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from arkml.base.http_server import LimitedProtocol, LimitedServer, _HeldReading
from arkml.server.connections import HiveConfig
from arkml.trials.server.web.connections import WebConfig, _HttpProtocol, _WebsocketProtocol

HTTP = {
    "_should_upgrade", "_start_asgi_task", "_unset_keepalive_if_required", "app_state",
    "client", "config", "connection_lost", "connection_made", "connections", "cycle",
    "data_received", "flow", "handle_websocket_upgrade", "headers", "loop", "on_body",
    "on_headers_complete", "on_message_begin", "on_message_complete", "on_response_complete",
    "parser", "pause_writing", "pipeline", "resume_writing", "shutdown", "transport",
}  # fmt: skip
CYCLE = {
    "body", "disconnected", "keep_alive", "message_event", "response_complete", "response_started",
}  # fmt: skip
SERVER = {"config", "lifespan", "serve", "server_state", "servers", "started"}
CONFIG = {"backlog", "http_protocol_class", "ssl"}
FLOW = {"holds", "pause_reading", "resume_reading"}  # the first is ours
WEBSOCKET = {
    "app_state", "close_sent", "config", "conn", "connection_lost", "connection_made",
    "curr_msg_data_type", "data_received", "disconnected", "frames", "handle_cont",
    "handle_parser_exception", "handle_ping", "handshake_complete", "handshake_initiated",
    "initial_response", "keepalive_timeout", "on_task_complete", "send",
    "send_receive_event_to_app", "shutdown", "transport", "writable",
}  # fmt: skip
"""A name more needs a look at what uvicorn does with it, and one less makes this shorter."""
_OF_PYTHON = {"__firstlineno__", "__static_attributes__"}  # which 3.13 gives each class


def names_after(places, *classes):
    """The names after `self`, `super()`, `self.cycle` and the like in classes."""
    trees = [ast.parse(textwrap.dedent(inspect.getsource(one))) for one in classes]
    return {
        node.attr
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in places
    }


def used(one, *more):
    """The names of uvicorn's class that subclasses of it use, with those that they override."""
    theirs, found = has(one.__mro__[1]), names_after({"self", "super()"}, one, *more)
    own = {name for each in (one, *more) for name in vars(each) if name not in _OF_PYTHON}
    return (found | own) & theirs


def has(one):
    """The names that instances of a class have, without those of every object."""
    lines = re.findall(r"self\.(\w+)(?:: [^=\n]+)? =", inspect.getsource(one.__init__))
    return {*dir(one), *lines} - set(dir(type("Empty", (), {})))


CONFIGS = names_after({"connection"}, WebConfig, HiveConfig)
HTTP_USES = used(LimitedProtocol, _HttpProtocol) | CONFIGS


@pytest.mark.parametrize(
    ("found", "expected", "one"),
    [
        (HTTP_USES, HTTP, HttpToolsProtocol),
        (
            names_after({"self.cycle", "self._running"}, LimitedProtocol),
            CYCLE,
            RequestResponseCycle,
        ),
        (used(_HeldReading) | names_after({"self.flow"}, LimitedProtocol), FLOW, FlowControl),
        (used(_WebsocketProtocol), WEBSOCKET, WebSocketsSansIOProtocol),
    ],
    ids=["http", "cycle", "flow", "websocket"],
)
def test_our_connections_use_these_names_of_uvicorn_and_no_others(found, expected, one):
    assert found == expected
    assert expected - {"holds"} <= has(one)


@pytest.mark.parametrize(
    ("places", "expected", "one"),
    [({"self"}, SERVER, uvicorn.Server), ({"config"}, CONFIG, uvicorn.Config)],
    ids=["server", "configuration"],
)
def test_our_server_begins_by_these_names_of_uvicorn_and_no_others(places, expected, one):
    source = inspect.getsource(one)

    assert names_after(places, LimitedServer) - {"limits"} == expected  # that is ours
    assert all(re.search(rf"(self\.|def ){name}\b", source) for name in expected)
