"""Which hosts there are: the Ansible inventory, the facts beside it, and the address book."""
