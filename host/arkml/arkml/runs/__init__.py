"""
Runs (trainings at a hive) in which guests of a host take part, and the host's access to hives.
"""
