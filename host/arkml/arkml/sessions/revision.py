"""A revision number of a guest's handles and sessions."""


class Revision:
    """A number that changes whenever a handle, a session key or a log context comes or goes."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0
