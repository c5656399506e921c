"""A stand-in for hatchling, so that pip fetches archives without running their programs."""
