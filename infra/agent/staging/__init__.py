"""Weights and archives brought to this host: resumed, verified against a manifest, renamed into place when whole."""
