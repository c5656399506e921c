"""The methods of gRPC services, made of the descriptors of their `.proto` files."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import grpc
from google.protobuf.descriptor import FileDescriptor, MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

_Method = Callable[[Any, Any], Any]


def stub(channel: Any, file: FileDescriptor, name: str) -> Any:
    """
    Return an object whose attributes are the methods of a gRPC service, called over a channel.

    Args:
        channel: The gRPC channel.
        file: Descriptor of the .proto file of the service.
        name: Name of the service in the file.

    """
    service = file.services_by_name[name]
    methods = SimpleNamespace()
    for method in service.methods:
        call = getattr(channel, _kind(method))(
            f"/{service.full_name}/{method.name}",
            request_serializer=GetMessageClass(method.input_type).SerializeToString,
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )
        setattr(methods, method.name, call)
    return methods


def serve(server: Any, file: FileDescriptor, name: str, servicer: object) -> None:
    """
    Make a gRPC server answer the methods of a service.

    Args:
        server: The gRPC server.
        file: Descriptor of the .proto file of the service.
        name: Name of the service in the file.
        servicer: Object with methods of the same names; calls of missing ones are refused.

    """
    service = file.services_by_name[name]
    handler = grpc.method_handlers_generic_handler(service.full_name, _handlers(service, servicer))
    server.add_generic_rpc_handlers((handler,))


def _handlers(service: ServiceDescriptor, servicer: object) -> dict[str, Any]:
    handlers = {}
    for method in service.methods:
        if hasattr(servicer, method.name):
            taken = GetMessageClass(method.input_type)
            answer = getattr(servicer, method.name)
            if not method.client_streaming:
                answer = (_stream_of if method.server_streaming else _answer_of)(answer)
            handlers[method.name] = getattr(grpc, f"{_kind(method)}_rpc_method_handler")(
                answer,
                request_deserializer=(
                    taken.FromString if method.client_streaming else partial(_request, taken)
                ),
                response_serializer=GetMessageClass(method.output_type).SerializeToString,
            )
    return handlers


def _request(kind: type[Message], content: bytes) -> Message | DecodeError:
    """Return the request of a call, or why it is none: gRPC would log a traceback of an error."""
    try:
        return kind.FromString(content)
    except DecodeError as error:
        return error


def _answer_of(answer: _Method) -> _Method:
    async def checked(request: Message | DecodeError, context: Any) -> Any:
        await _require(request, context)
        return await answer(request, context)

    return checked


def _stream_of(
    stream: Callable[[Any, Any], AsyncGenerator[Any, None]],
) -> Callable[[Any, Any], Any]:
    async def checked(request: Message | DecodeError, context: Any) -> AsyncGenerator[Any, None]:
        await _require(request, context)
        async with contextlib.aclosing(stream(request, context)) as messages:
            async for message in messages:
                yield message

    return checked


async def _require(request: Message | DecodeError, context: Any) -> None:
    """Refuse the call of a request that is none."""
    if isinstance(request, DecodeError):
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"not the request: {request}")


def _kind(method: MethodDescriptor) -> str:
    """Return the name that gRPC has for a method of this kind, such as "unary_stream"."""
    takes = "stream" if method.client_streaming else "unary"
    return f"{takes}_{'stream' if method.server_streaming else 'unary'}"
