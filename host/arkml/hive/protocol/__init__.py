"""What the client, the server and the learner agree on. Knows none of the three."""
