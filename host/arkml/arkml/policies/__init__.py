"""Policies, which answer submits, and the vetting and running of model files."""
