"""Compilation of modules, in this process or in one of its own, and the cache of machine code."""
