"""The SDK: what programs use to control trials, to act in them, and to be their environments."""
