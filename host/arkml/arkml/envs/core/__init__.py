"""A guest as an environment: its submits are answered by the actions of a `step`."""
