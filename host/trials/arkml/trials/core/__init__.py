"""One trial without any I/O: what its environment and its actors send, and what they get."""
