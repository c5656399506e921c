"""Guests: single instances of WebAssembly modules, and fleets of many that are stepped together."""
