"""Folders that play a guest in any browser, without a server."""
