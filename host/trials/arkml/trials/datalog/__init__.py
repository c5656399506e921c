"""The log of trials: a SQLite file with the parameters and the entries of each."""
