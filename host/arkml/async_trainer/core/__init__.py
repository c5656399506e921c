"""The core of the asynchronous trainer: agents, environments, buffers, records and evaluators."""
