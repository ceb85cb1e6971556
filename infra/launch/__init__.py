"""A deployment over hosts: order, readiness, proof, record."""
