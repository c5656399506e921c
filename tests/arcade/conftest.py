"""What is above Box2D is tested beside Gymnasium's own: see `make test-arcade`."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("Box2D") else ["test_box2d.py"]
