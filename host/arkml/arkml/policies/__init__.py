"""
Policies, which answer the submits of guests with actions, and the checking and running of models.
"""
