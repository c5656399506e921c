"""
The shim, wasm code between a guest and the host, and the memory words that it shares with the host.
"""
