"""Trials whose environment is a guest: their ticks, stand-ins, and what is learned from players."""
