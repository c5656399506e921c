"""
Learning from trials of guests: their ticks become rows of a hive's runs, or demonstration files.
"""
