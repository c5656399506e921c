"""The implementation of the ABI without wasm: one handler method per import that reaches Python."""
