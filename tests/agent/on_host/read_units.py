"""Run as root on a simulated host: what the group's watcher and `units` read of units, one line each as JSON.

python3 read_units.py FOLDER UNIT…     FOLDER holds infra/agent
"""

from __future__ import annotations

import json
import sys

sys.path.insert(0, sys.argv[1])
from infra.agent.group.units import Units, state_of_units
from infra.agent.host import Host
from infra.agent.processes.units import answer

host, names = Host(""), sys.argv[2:]
watched = Units(host, names).ask() or {}
rows = answer({"action": "status", "units": names}, host)["units"]
assert isinstance(rows, list)
for row in rows:
    unit = watched[row["unit"]]
    told = {"job": row["job"] > 0, "active_state": row["active_state"], "waits": unit.waits}
    sys.stdout.write(json.dumps({**told, "state": state_of_units([unit])}) + "\n")
