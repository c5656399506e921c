"""The guest ABI as data: tables, and what is derived from them."""
