"""A cluster of the stack's own on EKS: what is decided, made and refused for it."""
