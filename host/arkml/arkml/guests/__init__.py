"""Guests: one instance and its calls, and many of them in lockstep."""
