"""Policies compiled to WebAssembly: a module of one file, which computes one row."""

from arkml.policies.kernel.described import HostedModel, hosted, render

__all__ = ["HostedModel", "hosted", "render"]
