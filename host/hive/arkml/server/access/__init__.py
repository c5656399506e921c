"""Access to a hive: the callers, their tokens and roles, browsers and proxies."""
