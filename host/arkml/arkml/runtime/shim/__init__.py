"""The wasm between a guest and the host, and the words it shares with the host."""
