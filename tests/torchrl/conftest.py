"""What is here needs an environment of its own: see `make test-torchrl`."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torchrl") and find_spec("ray") else ["test_*.py"]
