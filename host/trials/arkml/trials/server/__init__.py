"""The server of trials: their state machines, what it calls, and what calls it."""
