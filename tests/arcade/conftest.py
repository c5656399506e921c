"""Gymnasium's games are tested beside Gymnasium's own: see `make test-arcade`."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("Box2D") else ["test_gymnasium.py"]
