"""Strict stand-ins for what only real hosts have: container runtimes and the vendors' tools."""
