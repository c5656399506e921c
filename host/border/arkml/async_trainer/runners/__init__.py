"""Runners of actors, in threads, in processes or on a Ray cluster."""
