"""What is derived from the tables: each renderer is a pure function from tables to text."""
