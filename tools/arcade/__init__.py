"""The arcade: games in C of other authors, fetched, built into guests and tried (`make arcade`)."""
