"""Whether a stack can start on its hosts: what is asked of them, how it is read, and how it is judged."""
