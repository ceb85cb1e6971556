"""What stands in for the world: emulated cloud, simulated hosts, simulated engine, stand-in tools."""
