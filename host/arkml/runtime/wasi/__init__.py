"""WASI for guests: what is granted, what waits, how it is linked."""
