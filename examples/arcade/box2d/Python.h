/* Stands in for Python's header, which Box2D's settings include to raise errors in Python. */
