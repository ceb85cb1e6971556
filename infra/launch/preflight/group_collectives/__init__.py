"""One all-reduce over all devices of a group that spans hosts, in the runtime that its engine will have."""
