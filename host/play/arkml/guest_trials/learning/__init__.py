"""Learning from trials of guests: rows for runs of a hive, and the same rows as demonstrations."""
