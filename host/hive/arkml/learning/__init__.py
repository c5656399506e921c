"""The learner: the process that trains the policy of one run."""
