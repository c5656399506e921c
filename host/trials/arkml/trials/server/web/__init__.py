"""The web port of a server of trials: grpc-web and grpc-websockets for browsers."""
