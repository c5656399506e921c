"""WASI for guests: grants, linking, and the calls that suspend."""
