"""Who answers a submit: policies made of trained models, and what a model file must be to enter."""
