"""What cannot work, and why: one small function per rule, over processes and hosts."""
