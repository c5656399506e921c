"""Small modules that take long or much memory to compile, as bytes."""

from pathlib import Path

NOTHING = b"\x60\0\0"  # the type () -> ()
END = b"\x0b"


def number(value):
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*encoded, value))


def vector(items):
    return number(len(items)) + b"".join(items)


def section(number_, content):
    return bytes((number_,)) + number(len(content)) + content


def body(code, locals_=0):
    declared = vector([number(locals_) + b"\x7f"]) if locals_ else b"\0"
    content = declared + code + END
    return number(len(content)) + content


def module(bodies, *, types=(NOTHING,), of=None, table=False, memory=False):
    """A module whose functions have the types `of`, by default the first one."""
    parts = [section(1, vector(list(types)))]
    parts.append(section(3, number(len(bodies)) + bytes(of or len(bodies))))
    parts += [section(4, b"\1\x70\0\x0a")] * table + [section(5, b"\1\0\1")] * memory
    return b"\0asm\1\0\0\0" + b"".join(parts) + section(10, vector(bodies))


def get(index):
    return b"\x20" + number(index)


def change(index):
    return get(index) + b"\x41\1\x6a\x21" + number(index)


def changes(locals_):
    return b"".join(map(change, range(locals_)))


def wide(values):
    """The type of `values` parameters and as many results."""
    return b"\x60" + vector([b"\x7f"] * values) * 2


def loops(depth, locals_):
    """Loops in each other; the innermost one changes all locals."""
    code = b"\x03\x40" * depth + changes(locals_) + END * depth
    return module([body(code, locals_)])


def empty_functions(count):
    return module([body(b"")] * count)


def exported_functions(count):
    exports = vector([number(4) + b"%04x" % i + b"\0" + number(i) for i in range(count)])
    whole = empty_functions(count)
    code = whole.rindex(section(10, vector([body(b"")] * count)))
    return whole[:code] + section(7, exports) + whole[code:]


def indirect_calls(count):
    return module([body(b"\x41\0\x11\0\0" * count)], table=True)


def ifs(count, locals_):
    """Conditions one after another, between changes and uses of all locals."""
    uses = b"".join(get(i) + b"\x1a" for i in range(locals_))
    return module([body(changes(locals_) + b"\x20\0\x04\x40\x0b" * count + uses, locals_)])


def branches(count, locals_):
    """Branches back to one loop, which changes all locals."""
    code = b"\x03\x40" + changes(locals_) + b"\x20\0\x0d\0" * count + END
    return module([body(code, locals_)])


def branch_table(count, locals_):
    """One table of branches back to one loop, which changes all locals."""
    table = b"\x20\0\x0e" + number(count) + bytes(count + 1)
    return module([body(b"\x03\x40" + changes(locals_) + table + END, locals_)])


def growths(count):
    return module([body(b"\x20\0\x40\0\x21\0" * count, 1)], memory=True)


def wide_loops(count, values):
    code = b"\x41\0" * values + b"\x03\1\x0b" * count + b"\x1a" * values
    return module([body(code)], types=(NOTHING, wide(values)))


def wide_calls(count, values):
    code = b"\x41\0" * values + b"\x10\1" * count + b"\x1a" * values
    return module([body(code), body(b"\0")], types=(NOTHING, wide(values)), of=[0, 1])


def calls_after_branches(count, calls, locals_):
    """Branches back to one loop, which changes all locals, and indirect calls after it."""
    code = b"\x03\x40" + changes(locals_) + b"\x20\0\x0d\0" * count + END
    return module([body(code + b"\x41\0\x11\0\0" * calls, locals_)], table=True)


def many_locals(functions, locals_):
    return module([body(b"", locals_)] * functions)


BOMBS = {
    "loops in each other, over locals": loops(1_000, 1_000),
    "more loops in each other, over locals": loops(10_000, 5_000),
    "loops in each other": loops(20_000, 1),
    "very many functions": empty_functions(200_000),
    "exported functions": exported_functions(20_000),
    "indirect calls": indirect_calls(100_000),
    "ifs over locals": ifs(70_000, 200),
    "branches to one loop": branches(10_000, 100),
    "a table of branches to one loop": branch_table(10_000, 100),
    "indirect calls after branches to a loop": calls_after_branches(700, 1_400, 400),
    "growths of a memory": growths(20_000),
    "loops with parameters": wide_loops(1_000, 1_000),
    "calls with parameters": wide_calls(500, 500),
    "declared locals": many_locals(2_000, 50_000),
}
"""Every one takes more than a second or 300 MB to compile. The largest has 1 MB."""

REAL = Path(__file__).parents[1] / "fixtures" / "guests"
