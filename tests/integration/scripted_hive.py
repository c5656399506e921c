"""A hive that answers as it is told to: real HTTP on loopback, no storage and no learner."""

import json
import threading
import time
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from arkml.hive.address import Address
from arkml.hive.protocol.rows import HEADER_SIZE, decode, parse_header


class ScriptedHive:
    """
    Keeps the bodies that it took, by their numbers.

    `replies` are what the next rows requests get, each a function of hive, handler and body; a
    plain answer follows when they are used up. `scripts` are the same for other routes, by the
    last word of their paths, the last one of them again and again. `times` are when each was asked.
    """

    def __init__(self):
        self.bodies = {}
        self.replies = []
        self.scripts = {}
        self.times = {}
        self.tokens = set()
        self.left = []
        self.names = {}
        self.joins = 0
        self.dropped = 0
        self.asked = 0
        self.credit = 1 << 20
        self.acked = 0
        self.hold = False
        self.gate = threading.Event()
        self.gate.set()
        self.at_once = self.most_at_once = 0
        self._lock = threading.Lock()
        hive = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                hive.answer(self, self.rfile.read(int(self.headers.get("content-length", 0))))

            def do_GET(self):
                hive.answer(self, b"")

            def log_message(self, *_):
                """Nobody reads it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def locate(self):
        return Address("127.0.0.1", self.port)

    def close(self):
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()

    def answer(self, handler, body):
        route = route_of(handler)
        self.times.setdefault(route, []).append(time.monotonic())
        self.tokens.add(handler.headers.get("authorization"))
        if scripted := self.scripts.get(route):
            reply = scripted.pop(0) if len(scripted) > 1 else scripted[0]
            reply(self, handler, body)
        elif route == "rows":
            with self._counted():
                self.gate.wait(300)
            reply = self.replies.pop(0) if self.replies else take
            reply(self, handler, body)
        else:
            self.plainly(route, handler, body)

    @contextmanager
    def _counted(self):
        with self._lock:
            self.asked += 1
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            yield
        finally:
            with self._lock:
                self.at_once -= 1

    def plainly(self, route, handler, body):
        """The answer of a hive that works."""
        told = json.loads(body or b"{}")
        match route:
            case "sessions":
                self.joins += 1
                fields = {"sid": f"s{self.joins}", "index": 1, "rejoin": self.joins > 1}
                fields |= {"learner": "sac", "is_on_policy": False, "is_pink": True}
                self.say(handler, 200, {**self.standing(), **fields})
            case "names":
                for name in told["names"]:
                    self.names.setdefault(name, len(self.names))
                self.say(handler, 200, {"ids": self.names})
            case "leave":
                self.left.append(told)
                self.say(handler, 200, {})
            case "health":
                self.say(handler, 200, {"service": "arkml-hive", "protocol": 1})
            case "policy":
                self.say(handler, 204)
            case _:
                self.say(handler, 200, self.standing())

    def standing(self):
        return {"acked": self.acked, "credit": self.credit, "hold": self.hold, "policy_version": 0}

    def keep(self, body):
        """Take a body once; whether it is there already."""
        header = parse_header(body)
        known = header.seq in self.bodies
        if not known:
            self.bodies[header.seq] = decode(header, body[HEADER_SIZE:])
            self.dropped += header.dropped
            self.acked = header.seq
        return known

    @staticmethod
    def say(handler, status, fields=None):
        data = b"" if fields is None else json.dumps(fields).encode()
        handler.send_response(status)
        handler.send_header("content-length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def rewards(self):
        """Of all rows, in the order of the bodies."""
        columns = [self.bodies[seq] for seq in sorted(self.bodies)]
        return [reward for found in columns for reward in found.reward.tolist()]


def route_of(handler):
    """The last word of the path that is asked for."""
    return handler.path.partition("?")[0].rpartition("/")[2]


def take(hive, handler, body):
    """Take the rows."""
    known = hive.keep(body)
    rows = parse_header(body).rows
    hive.say(handler, 200, {**hive.standing(), "accepted": rows, "refused": [], "refused_n": 0,
                            "duplicate": known})  # fmt: skip


def plain(hive, handler, body):
    """Answer like a hive that works."""
    hive.plainly(route_of(handler), handler, body)


def status(code, **fields):
    """Refuse with a status."""
    return lambda hive, handler, _: hive.say(handler, code, {"error": "scripted", **fields})


def raw(data, *, code=200, keeps=True, **headers):
    """Take the rows, with `keeps`, and answer with these bytes, whatever they are."""

    def reply(hive, handler, body):
        if keeps and handler.command == "POST" and body.startswith(b"AKR1"):
            hive.keep(body)
        handler.send_response(code)
        for name, value in ({"content_length": len(data)} | headers).items():
            handler.send_header(name.replace("_", "-"), str(value))
        handler.end_headers()
        handler.wfile.write(data)

    return reply


def endless(hive, handler, body):
    """Answer with more and more, without saying how much."""
    del hive, body
    handler.send_response(200)
    handler.send_header("transfer-encoding", "chunked")
    handler.end_headers()
    handler.close_connection = True
    part = bytes(1 << 16)
    with suppress(OSError):
        while True:
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))


def cut(hive, handler, body):
    """Hang up without an answer and without the rows."""
    del hive, body
    handler.connection.close()
    handler.close_connection = True


def cut_after(hive, handler, body):
    """Take the rows and hang up before the answer."""
    hive.keep(body)
    cut(hive, handler, body)


def forget(hive, handler, _):
    """Not know the session any more."""
    hive.say(handler, 404, {"error": "no such session"})
