"""Files of demonstrations: rows that a good policy, or a person, has played."""
