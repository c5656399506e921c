"""Renderers of the tables, each a pure function from tables to text."""
