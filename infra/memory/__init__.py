"""What fits on a device: weights, KV cache, the longest context."""
