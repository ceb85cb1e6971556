"""Container images on hosts: which lack one, and an archive of it sent to those."""
