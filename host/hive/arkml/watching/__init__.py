"""The program that plays versions of a policy for people who watch: `python -m arkml.watching`."""
