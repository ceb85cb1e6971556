"""AWS: machines on EC2, and a cluster of its own on EKS."""
