"""The page of a hive: its files, and data that the page shows and clients do not need."""
