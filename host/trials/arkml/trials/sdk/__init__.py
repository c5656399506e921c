"""The SDK for programs that control trials, act in them, or are their environments."""
