"""The floor of every house: files, streams, names of hosts, and processes."""
