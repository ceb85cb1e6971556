"""A host's wanted state: observed, compared, applied, verified and taken back."""
