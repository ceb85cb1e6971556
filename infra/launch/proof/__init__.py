"""Proof that a deployment serves: every rank, the router, every capability, the transport that was meant."""
