"""The compiler: a stack becomes a topology of slots, and with addresses a plan of processes."""
