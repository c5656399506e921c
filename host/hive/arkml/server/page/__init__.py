"""The page of a hive: its files, and the data that it shows beside those of clients."""
