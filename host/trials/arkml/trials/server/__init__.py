"""The server of trials: trials as tasks, services that clients call, and calls that it makes."""
