"""Reports of runs: one file each, for people."""
