"""Groups that live and die together: what one host decides of its own part, and the watcher that does it."""
