"""What is true of the world: accelerators, checkpoints, engine releases, tuning, recipes, as data."""
