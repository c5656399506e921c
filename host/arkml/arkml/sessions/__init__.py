"""The implementation of the ABI without wasm: a Python handler for each import that needs one."""
