"""Machines and their networks on Google Compute Engine."""
