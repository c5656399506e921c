"""The guest ABI as data: tables, and the files rendered from them."""
