"""Replays of traces: what a guest did, played again without its policy, hive or game."""
