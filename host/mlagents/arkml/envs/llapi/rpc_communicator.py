"""The connection to a player over gRPC: Python serves, and the player calls."""

from __future__ import annotations

import errno
import queue
import socket
import sys
import threading
import time
from concurrent.futures import CancelledError, Future

import grpc
from google.protobuf.message import DecodeError

from arkml.base.grpc_ports import port_options
from arkml.envs.llapi.communicator import Communicator, PollCallback
from arkml.envs.llapi.communicator_objects.header_pb2 import HeaderProto
from arkml.envs.llapi.communicator_objects.unity_input_pb2 import UnityInputProto
from arkml.envs.llapi.communicator_objects.unity_message_pb2 import UnityMessageProto
from arkml.envs.llapi.communicator_objects.unity_output_pb2 import UnityOutputProto
from arkml.envs.llapi.exception import (
    UnityEnvironmentException,
    UnityTimeOutException,
    UnityWorkerInUseException,
)
from arkml.envs.llapi.handshake import PLAYER_BYTES, TRAINER_BYTES
from arkml.envs.llapi.player_threads import DaemonThreads

_SERVICE = "communicator_objects.UnityToExternalProto"
_GO_ON = 200
_STOP = 400
_GOODBYE = 2.0  # seconds that a player has to take the last answer
_POLL = 0.2  # seconds between looks at the player's process, or a tenth of the wait
_THREADS = 2  # one waits with the player's call, one refuses others
_CALLS = 8  # most calls whose messages gRPC buffers; others are refused unread

_NO_SUCH_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)

_OPTIONS = (
    ("grpc.max_receive_message_length", PLAYER_BYTES),
    ("grpc.max_send_message_length", TRAINER_BYTES),
)


class _Call:
    """One message of the player, and the answer that it waits for."""

    def __init__(self, request: UnityMessageProto) -> None:
        self.request = request
        self.answer: Future[UnityMessageProto] = Future()
        self.ended = threading.Event()

    def end(self) -> None:
        """End the call: the player has its answer, or has gone."""
        self.answer.cancel()
        self.ended.set()

    def reply(self, message: UnityMessageProto) -> None:
        """Answer, unless the player has gone."""
        if self.answer.set_running_or_notify_cancel():
            self.answer.set_result(message)


class _Calls:
    """Pending calls of the player, with the methods of a `Connection`."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[_Call] = queue.SimpleQueue()
        self._first: _Call | None = None

    def put(self, call: _Call) -> None:
        """Add a call."""
        self._queue.put(call)

    def poll(self, timeout: float = 0.0) -> bool:
        """Wait at most `timeout` seconds for a call, and return whether there is one."""
        if self._first is None:
            try:
                self._first = self._queue.get(timeout > 0, timeout)
            except queue.Empty:
                return False
        return True

    def recv(self) -> _Call:
        """Wait for the first call and remove it."""
        call, self._first = self._first, None
        return self._queue.get() if call is None else call


class UnityToExternalServicerImplementation:
    """
    A gRPC service that passes a player's calls to the environment's thread; named by ML-Agents.
    """

    def __init__(self) -> None:
        self.parent_conn = _Calls()
        self._one = threading.Lock()
        self._answer: Future[UnityMessageProto] | None = None  # answer to the latest call

    def Exchange(  # noqa: N802 - the name on the wire
        self, request: UnityMessageProto | DecodeError, context: grpc.ServicerContext
    ) -> UnityMessageProto:
        if isinstance(request, DecodeError):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"not a message: {request}")
        assert isinstance(request, UnityMessageProto)  # abort raises
        call = _Call(request)
        with self._one:
            is_free = self._answer is None or self._answer.done()
            if is_free:
                self._answer = call.answer
        if not is_free:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "another call is being answered")
        if not context.add_callback(call.end):
            call.end()
        self.parent_conn.put(call)
        try:
            return call.answer.result()
        except CancelledError:
            return UnityMessageProto(header=HeaderProto(status=_STOP))


class RpcCommunicator(Communicator):
    """
    Serves one player on port `base_port + worker_id` until closed.

    `listen` is the address to listen at: "localhost" for this machine only, "" for every interface.
    There is no authentication. Raises UnityWorkerInUseException if the port is in use.
    """

    def __init__(
        self,
        worker_id: int = 0,
        base_port: int = 5005,
        timeout_wait: float = 30,
        *,
        listen: str = "localhost",
    ) -> None:
        super().__init__(worker_id, base_port)
        self.timeout_wait = timeout_wait
        self.is_open: bool = False
        self._current: _Call | None = None
        addresses = _addresses(listen, self.port, worker_id)
        self.unity_to_external = UnityToExternalServicerImplementation()
        self._threads = DaemonThreads(_THREADS, "arkml-player")
        self._server = grpc.server(
            self._threads, options=[*port_options(), *_OPTIONS], maximum_concurrent_rpcs=_CALLS
        )
        exchange = grpc.unary_unary_rpc_method_handler(
            self.unity_to_external.Exchange,
            request_deserializer=_message,
            response_serializer=UnityMessageProto.SerializeToString,
        )
        handler = grpc.method_handlers_generic_handler(_SERVICE, {"Exchange": exchange})
        self._server.add_generic_rpc_handlers((handler,))
        try:
            for address in addresses:
                self._server.add_insecure_port(f"{address}:{self.port}")
        except RuntimeError as error:
            self._server.stop(None)
            self._threads.shutdown()
            raise UnityWorkerInUseException(worker_id) from error
        self._server.start()
        self.is_open = True

    def initialize(
        self, inputs: UnityInputProto, poll_callback: PollCallback | None = None
    ) -> UnityOutputProto:
        """
        Return the player's first message, after its second one, which is empty, has arrived.

        Raises UnityTimeOutException, or the error of `poll_callback`.
        """
        first = self._next(poll_callback)
        self._answer(inputs)
        self._next(poll_callback)
        return first.unity_output

    def exchange(
        self, inputs: UnityInputProto, poll_callback: PollCallback | None = None
    ) -> UnityOutputProto | None:
        """Return the player's answer, None if it stopped or no longer answers."""
        if self._current is None:
            return None
        self._answer(inputs)
        message = self._next(poll_callback)
        return message.unity_output if message.header.status == _GO_ON else None

    def close(self) -> None:
        """Answer the player's last call with status 400 and free the port. Idempotent."""
        if not self.is_open:
            return
        self.is_open = False
        goodbye = UnityMessageProto(header=HeaderProto(status=_STOP))
        call = self._current or self._waiting()
        while call is not None:
            call.reply(goodbye)
            call.ended.wait(_GOODBYE)
            call = self._waiting()
        self._current = None
        # A grace period needs a new thread, which cannot be started at the program's end.
        self._server.stop(None).wait()
        self._threads.shutdown()

    def _waiting(self) -> _Call | None:
        """Return a call that arrived too late to be handled."""
        calls = self.unity_to_external.parent_conn
        return calls.recv() if calls.poll() else None

    def _answer(self, inputs: UnityInputProto) -> None:
        call, self._current = self._current, None
        if call is not None:
            call.reply(UnityMessageProto(header=HeaderProto(status=_GO_ON), unity_input=inputs))

    def _next(self, poll_callback: PollCallback | None) -> UnityMessageProto:
        deadline = time.monotonic() + self.timeout_wait
        interval = min(self.timeout_wait / 10, _POLL)
        calls = self.unity_to_external.parent_conn
        while (left := deadline - time.monotonic()) > 0:
            if calls.poll(min(interval, left)):
                self._current = calls.recv()
                return self._current.request
            if poll_callback is not None:
                poll_callback()
        raise UnityTimeOutException(
            "The Unity environment took too long to respond. Make sure that :\n"
            "\t The environment does not need user interaction to launch\n"
            '\t The Agents\' Behavior Parameters > Behavior Type is set to "Default"\n'
            "\t The environment and the Python interface have compatible versions.\n"
            "\t If you're running on a headless server without graphics support, turn off display "
            "by either passing --no-graphics option or build your Unity executable as server build."
        )


def _message(content: bytes) -> UnityMessageProto | DecodeError:
    """Return a message, or why it is none: gRPC would log a traceback of an error."""
    try:
        return UnityMessageProto.FromString(content)
    except DecodeError as error:
        return error


def _addresses(listen: str, port: int, worker_id: int) -> list[str]:
    """Return the addresses of this machine to listen at."""
    wanted = {"localhost": ["127.0.0.1", "[::1]"], "": ["[::]"]}.get(listen, [listen])
    addresses = [address for address in wanted if _can_bind(address, port, worker_id)]
    if not addresses and listen == "" and _can_bind("0.0.0.0", port, worker_id):
        return ["0.0.0.0"]  # a machine without IPv6
    if not addresses:
        raise UnityEnvironmentException(f"This machine has no address {listen!r} to listen on.")
    return addresses


def _can_bind(address: str, port: int, worker_id: int) -> bool:
    """Return whether the machine has the address, which it may lack without IPv6."""
    host = address.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        where = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)[0][4]
        probe = socket.socket(family, socket.SOCK_STREAM)
    except OSError:
        return False
    with probe:
        if sys.platform != "win32":  # on Windows it would let two servers share a port
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(where)
        except OSError as error:
            if error.errno in _NO_SUCH_ADDRESS:
                return False
            raise UnityWorkerInUseException(worker_id) from error
    return True
