"""One black-box suite for engines: what the released one answers, and whether the simulated one answers the same.

scripts/conformance              # the simulated engine, compared with the recorded real one; writes docs/conformance.md
scripts/conformance --record     # the real engine (scripts/install-cpu-engine first); writes recorded/
"""
