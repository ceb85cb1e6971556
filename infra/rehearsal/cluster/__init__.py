"""A real Kubernetes control plane on loopback, and simulated nodes: nothing runs in the pods."""
