"""Column memory, into which guests push rows: its blocks, slabs, regions and session records."""
