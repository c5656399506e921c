"""A guest that is stepped from outside: its submits are answered by the actions of a step."""
