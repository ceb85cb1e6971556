"""Run as root on a simulated host: what is read of the latest start of units whose processes end at once.

python3 read_starts.py FOLDER UNIT…     FOLDER holds infra/agent; prints by unit its start and the texts, as JSON
"""

from __future__ import annotations

import json
import sys

sys.path.insert(0, sys.argv[1])
from infra.agent.host import Host
from infra.agent.journal.starts import Start, read_starts
from infra.agent.processes.units import show_units

LIMIT_S = 30.0

host = Host("")
starts = {
    unit: Start(shown["InvocationID"], int(shown["ExecMainPID"]))
    for unit, shown in show_units(host, sys.argv[2:]).items()
}
said = read_starts(host, starts, 100 * len(starts), LIMIT_S)
found = {
    unit: {"start": start.invocation, "texts": [each.text for each in said if each.unit == unit]}
    for unit, start in starts.items()
}
sys.stdout.write(json.dumps(found))
