"""Training and evaluating guests from Python: the library under `arkml train`."""
