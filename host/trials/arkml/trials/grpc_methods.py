"""The methods of gRPC services, made of the descriptors of their `.proto` files."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import grpc
from google.protobuf.descriptor import FileDescriptor, MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass


def stub(channel: Any, file: FileDescriptor, name: str) -> Any:
    """Return an object with the methods of a service, called over a channel, as attributes."""
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
    """Have a server answer the methods of a service that `servicer` has; others are refused."""
    service = file.services_by_name[name]
    handler = grpc.method_handlers_generic_handler(service.full_name, _handlers(service, servicer))
    server.add_generic_rpc_handlers((handler,))


def _handlers(service: ServiceDescriptor, servicer: object) -> dict[str, Any]:
    handlers = {}
    for method in service.methods:
        if hasattr(servicer, method.name):
            handlers[method.name] = getattr(grpc, f"{_kind(method)}_rpc_method_handler")(
                getattr(servicer, method.name),
                request_deserializer=GetMessageClass(method.input_type).FromString,
                response_serializer=GetMessageClass(method.output_type).SerializeToString,
            )
    return handlers


def _kind(method: MethodDescriptor) -> str:
    """Return the name that gRPC has for a method of this kind, such as "unary_stream"."""
    takes = "stream" if method.client_streaming else "unary"
    return f"{takes}_{'stream' if method.server_streaming else 'unary'}"
