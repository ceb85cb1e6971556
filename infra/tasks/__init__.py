"""What `fab` runs: one module per task, wiring and no logic."""
