"""What an item of a host's state can be: how each kind is read and written."""
