"""How programs written in Go are run in a rehearsal."""

from __future__ import annotations

# They live for one command or one rehearsal. Left alone, Go looks for garbage whenever the heap has doubled, which is
# a third of what an API server computes until it is ready (12.4 s or 7.5 s of processor time, Kubernetes 1.35, for
# 0.8 GB in place of 0.5 GB) and a tenth of a `pulumi up`.
GO_ENVIRONMENT = {"GOGC": "400"}
