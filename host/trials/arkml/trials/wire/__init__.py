"""Cogment's protocol, version 2: its messages and services, generated from the `.proto` files."""
