"""Adaptors that make guests, Gymnasium environments and SAC usable by the trainer."""
