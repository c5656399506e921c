"""The hive as a host sees it: the wire, the client, the hive that lives and dies with its host."""
