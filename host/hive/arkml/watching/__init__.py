"""The program that plays policy versions for people who watch a run: `python -m arkml.watching`."""
