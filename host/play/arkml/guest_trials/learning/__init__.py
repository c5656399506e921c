"""Learning from trials of guests: rows for runs of a hive, and equal rows as demonstrations."""
