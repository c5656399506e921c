"""The log of trials, a SQLite file with the parameters and entries of each trial."""
