"""One trial without any I/O: its states, ticks, rewards, messages and outputs."""
