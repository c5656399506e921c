"""The tree of error classes as text."""

from arkml import errors


def children(parent):
    """Classes of `arkml.errors` whose first base is `parent`, in the order of the module."""
    return [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and value.__bases__[0] is parent
    ]


def lines(parent, indent=""):
    """Lines of the classes below `parent`; a second base stands in parentheses."""
    found = []
    for kind in (classes := children(parent)):
        is_last = kind is classes[-1]
        others = "".join(f" ({base.__name__})" for base in kind.__bases__[1:])
        found.append(f"{indent}{'└── ' if is_last else '├── '}{kind.__name__}{others}")
        found += lines(kind, indent + ("    " if is_last else "│   "))
    return found


def tree():
    """All error classes below ArkmlError."""
    return "\n".join([errors.ArkmlError.__name__, *lines(errors.ArkmlError)])
