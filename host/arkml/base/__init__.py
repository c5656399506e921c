"""The floor of every house: files, streams, names of hosts, processes; depends on nothing."""
