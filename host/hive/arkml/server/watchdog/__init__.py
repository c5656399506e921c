"""The watchdog of runs: rules that detect trouble in a run's metrics, and their findings."""
