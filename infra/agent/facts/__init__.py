"""What a host is and can do: read for preflight and for choosing its profile."""
