"""Replays of traces: a guest runs again as it was recorded, without its policy, hive or game."""
