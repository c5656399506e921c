"""Compilation of modules: here or in a process of its own, and the cache of the results."""
