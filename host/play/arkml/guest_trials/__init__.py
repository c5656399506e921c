"""Trials whose environment is a guest: their ticks, their stand-ins, and learning from players."""
