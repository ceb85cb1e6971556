"""Which modules a request to the state needs beside those that all of them do.

Whoever asks may know what the host has recorded (`recorded_kinds`): told at once, it is not asked for afterwards.
"""

from typing import Dict, List

from ..kinds.table import KINDS, modules_of


def parts_of(request: Dict[str, object]) -> List[str]:
    """Their names in the agent: those of its items' kinds, and those of its mode."""
    mode, listed = request.get("mode"), request.get("items")
    takes_back = mode in ("rollback", "remove")
    items = listed if isinstance(listed, list) else []
    told = request.get("recorded_kinds")
    kinds = [str(one.get("kind")) for one in items] + (told if isinstance(told, list) else [])
    found = modules_of(KINDS if takes_back else kinds)
    if takes_back or request.get("prunes"):
        found.append("state.taking_back")
    if mode == "apply":
        found.append("state.laying_out")
    if request.get("diff"):
        found.append("state.differences")
    if any(request.get(key) for key in ("keep", "tells_releases", "forgets_releases")):
        found.append("state.kept_releases")
    return found


def all_parts() -> List[str]:
    """What any request may turn out to need, by what is recorded on its host."""
    further = ("taking_back", "laying_out", "differences", "kept_releases")
    return [*modules_of(KINDS), *("state." + name for name in further)]
