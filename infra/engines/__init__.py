"""How to speak to an engine: the only room that knows a flag, writing or reading it."""
