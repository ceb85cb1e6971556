"""Checkpoints brought to hosts: planned, started there, followed to the end."""
