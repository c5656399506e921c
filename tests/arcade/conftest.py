"""What is tested beside Gymnasium's games and by OpenSpiel's search: see `make test-arcade`."""

from importlib.util import find_spec

_NEEDED = {"test_gymnasium.py": "Box2D", "test_openspiel.py": "pyspiel"}

collect_ignore_glob = [name for name, package in _NEEDED.items() if find_spec(package) is None]
