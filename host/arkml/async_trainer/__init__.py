"""Asynchronous training: actors sample side by side, one trainer learns."""
