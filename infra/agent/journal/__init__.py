"""What units have written, read from the journal's files or by journalctl, and sent as a stream."""
