"""Foundations of all packages: files, streams, host names and processes."""
