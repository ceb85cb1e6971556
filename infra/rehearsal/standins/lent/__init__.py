"""Python packages that images and environments of simulated hosts have: what `python3 -c` finds there."""
