"""The rules by subject: each with its severity, its releases, its source and the check that finds."""
