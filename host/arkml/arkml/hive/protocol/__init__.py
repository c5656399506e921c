"""The protocol between the client, the server and the learner. Imports none of the three."""
