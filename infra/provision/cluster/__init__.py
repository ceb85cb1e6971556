"""A stack in a Kubernetes cluster, whoever made it: its facts, what it must have, and the objects of the workload."""
