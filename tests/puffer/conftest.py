"""What is here needs an environment of its own: see `make test-puffer`."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("pufferlib") else ["test_*.py"]
