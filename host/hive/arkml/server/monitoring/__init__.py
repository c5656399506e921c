"""The view of operators on a hive: health, metrics, traces and log lines."""
