"""The shared memory that sessions push into: blocks, slabs, regions, records."""
