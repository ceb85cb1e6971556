"""SSH, and nothing but SSH: verified connections, one execution each, outcomes that say when they are unknown."""
