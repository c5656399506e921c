"""The watchdog of runs: rules about their metrics, and what they have found."""
