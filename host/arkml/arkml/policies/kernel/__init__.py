"""Kernels: policies compiled to WebAssembly, to one module that computes one row at a time."""

from arkml.policies.kernel.described import HostedModel, hosted, render

__all__ = ["HostedModel", "hosted", "render"]
