"""The column memory, which guests push rows into: blocks, slabs, regions and session records."""
