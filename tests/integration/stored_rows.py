"""The rows in the stored log of a run, as the hive has acknowledged them."""

from arkml.hive.protocol.rows import read_records


def stored_records(data):
    """Return the records of the only run of a hive's directory, in the order of the log."""
    records = []
    for path in sorted(data.glob("runs/*/rows/*.rows")):
        content = path.read_bytes()
        records += read_records(memoryview(content), 0, len(content))
    return records
