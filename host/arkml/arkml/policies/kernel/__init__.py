"""Policies compiled to WebAssembly: a module of one file, which computes one row."""

from arkml.policies.kernel.described import render

__all__ = ["render"]
