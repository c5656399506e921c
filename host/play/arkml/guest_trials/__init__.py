"""
Trials (in the sense of Cogment) whose environment is a guest, and learning from their players.
"""
