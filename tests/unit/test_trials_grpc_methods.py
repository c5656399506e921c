"""Stubs and handlers of gRPC services, which are made of descriptors."""

from importlib import import_module

import grpc
import pytest
from tests import generated_stubs

from arkml.trials.grpc_aio import insecure_channel, new_server
from arkml.trials.grpc_methods import serve, stub
from arkml.trials.server.server import Server
from arkml.trials.wire import lifecycle_pb2
from arkml.trials.wire.common_pb2 import VersionInfo, VersionRequest
from arkml.trials.wire.lifecycle_pb2 import TrialListRequest

FILES = ["actor", "datalog", "environment", "hooks", "lifecycle", "players"]


class Recorded:
    """A channel that keeps the methods that a stub asks for, by path."""

    def __init__(self):
        self.methods = {}

    def __getattr__(self, kind):
        def method(path, request_serializer, response_deserializer, **_):
            self.methods[path] = kind, request_serializer, type(response_deserializer(b""))

        return method


@pytest.mark.parametrize("name", FILES)
def test_a_stub_has_the_methods_that_grpc_generates(name):
    file = import_module(f"arkml.trials.wire.{name}_pb2").DESCRIPTOR
    generated, made = Recorded(), Recorded()
    for service in file.services_by_name:
        getattr(getattr(generated_stubs, f"{name}_pb2_grpc"), f"{service}Stub")(generated)
        stub(made, file, service)

    assert made.methods == generated.methods
    assert made.methods


class OnlyVersion:
    async def Version(self, request, context):  # noqa: ARG002, N802
        return VersionInfo(versions=[VersionInfo.Version(name="one", version="2")])


async def test_a_method_that_a_servicer_does_not_have_is_not_implemented():
    server = new_server([])
    serve(server, lifecycle_pb2.DESCRIPTOR, "TrialLifecycleSP", OnlyVersion())
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with insecure_channel(f"127.0.0.1:{port}", []) as channel:
            methods = stub(channel, lifecycle_pb2.DESCRIPTOR, "TrialLifecycleSP")
            answer = await methods.Version(VersionRequest())
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await methods.WatchTrials(TrialListRequest()).read()
    finally:
        await server.stop(None)

    assert answer.versions[0].version == "2"
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


def is_of_a_closed_loop(record):
    return record.exc_info is not None and str(record.exc_info[1]) == "Event loop is closed"


@pytest.mark.parametrize("method", ["Version", "WatchTrials"])
async def test_a_request_that_is_none_is_refused_and_no_error_of_the_server(method, caplog):
    async with Server() as server:
        port, _ = await server.listen("127.0.0.1", 0)
        async with insecure_channel(f"127.0.0.1:{port}", []) as channel:
            call = channel.unary_stream(f"/cogmentAPI.TrialLifecycleSP/{method}")(b"\xff")
            code, details = await call.code(), await call.details()

    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert details.startswith("not the request: ")
    # The loop of this test is open: one that is closed is of another test, by the poller of grpc.
    assert [one for one in caplog.records if not is_of_a_closed_loop(one)] == []
