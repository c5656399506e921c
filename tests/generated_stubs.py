"""The stubs and servicers of trials as gRPC generates them, of which the package has no copy."""

import grpc

actor_pb2_grpc, datalog_pb2_grpc, environment_pb2_grpc, hooks_pb2_grpc = (
    grpc.services(f"arkml/trials/wire/{name}.proto")
    for name in ("actor", "datalog", "environment", "hooks")
)
lifecycle_pb2_grpc = grpc.services("arkml/trials/wire/lifecycle.proto")
players_pb2_grpc = grpc.services("arkml/trials/wire/players.proto")
