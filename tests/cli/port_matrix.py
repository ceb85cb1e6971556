"""Who reaches which port of which host: first packets that are answered in any way, and those that are not."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from infra.rehearsal.lab.client import Lab

Dial = tuple[str, str, int]
"""Who dials, the host that is dialled, and the port."""

# A refusal comes from the host itself: the packet has passed. Nothing comes of one that is dropped.
_DIALER = """\
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor
def passes(place):
    try:
        socket.create_connection(tuple(place), timeout=3).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return True
places = json.load(sys.stdin)
with ThreadPoolExecutor(max(1, len(places))) as pool:
    print(json.dumps(list(pool.map(passes, places))))
"""


def passing(lab: Lab, callers: Iterable[str], ports: Mapping[str, set[int]]) -> set[Dial]:
    """The dials between two hosts that come through.

    Args:
        lab: the hosts.
        callers: who dials.
        ports: what is dialled, by host.
    """
    addresses = {host.name: host.address for host in lab.status()}

    def dial(caller: str) -> list[Dial]:
        places = [
            (host, port) for host, each in ports.items() for port in sorted(each) if host != caller
        ]
        asked = json.dumps([(addresses[host], port) for host, port in places]).encode()
        done = lab.run(caller, ["python3", "-I", "-S", "-c", _DIALER], stdin=asked)
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        return [(caller, *place) for place, passes in zip(places, told, strict=True) if passes]

    with ThreadPoolExecutor() as pool:
        return {found for each in pool.map(dial, callers) for found in each}
