"""What `pulumi up` runs: machines, network and weight storage of one stack, and nothing else."""
