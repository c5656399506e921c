"""Environments and agents that the asynchronous trainer takes as they are."""
