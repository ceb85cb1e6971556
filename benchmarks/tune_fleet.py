"""The hosts that `tune_hosts.py` tunes, with their stack and inventory, and the floor F on them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from generated_stacks import GB200_UNIFIED
from lab_fleet import LabFleet, inventory_text

from infra.catalog.load import Catalog
from infra.launch.fleet import Answers, Request
from infra.launch.host_tuning import TuningMode, TuningOrder, tune
from infra.remote.agent_call import agent_command, framed_request
from infra.remote.agent_modules import agent_program
from infra.render.host_state import tuning_state
from infra.tasks.options import Options
from infra.tasks.reached_hosts import host_states
from infra.tasks.stack_options import compile_for_hosts

FAB = str(Path(sys.executable).with_name("fab"))
DIFFERS = 6
PARALLEL = 64
TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Some of the lab's hosts with their stack and inventory."""

    lab: LabFleet
    names: tuple[str, ...]
    stack: Path
    inventory: Path
    folder: Path

    @property
    def choice(self) -> list[str]:
        """The options that choose them."""
        return ["--file", str(self.stack), "--inventory", str(self.inventory)]

    def fab(self, *words: str) -> list[str]:
        """`fab tune-hosts` on them."""
        return [*self.lab.enter, FAB, "tune-hosts", *self.choice, *words]


def first_hosts(lab: LabFleet, count: int) -> Fleet:
    """The first hosts of a lab, with files of their own."""
    folder = lab.folder / str(count)
    folder.mkdir()
    names = tuple(list(lab.hosts)[:count])
    stack = folder / f"hosts-{count}.yaml"
    stack.write_text(GB200_UNIFIED.format(count=count // 4))  # four hosts a replica
    inventory = folder / "inventory.yml"
    inventory.write_text(inventory_text(lab, {"unified": names}))
    return Fleet(lab=lab, names=names, stack=stack, inventory=inventory, folder=folder)


def first_host(fleet: Fleet) -> Fleet:
    """The first host of some, by itself."""
    folder = fleet.lab.folder / "one"
    folder.mkdir(exist_ok=True)
    stack = folder / "one.yaml"
    text = fleet.stack.read_text().replace("data_parallel: 16", "data_parallel: 4")
    stack.write_text(text)
    names = fleet.names[:1]
    inventory = folder / "inventory.yml"
    inventory.write_text(inventory_text(fleet.lab, {"unified": names}))
    return Fleet(lab=fleet.lab, names=names, stack=stack, inventory=inventory, folder=folder)


class _Recorder:
    """Takes the requests in place of hosts."""

    def __init__(self) -> None:
        self.requests: dict[str, Request] = {}

    def ask(self, requests: Mapping[str, Request], *, timeout_s: float) -> Answers:
        del timeout_s
        self.requests = dict(requests)
        return {name: {"items": []} for name in requests}


def floor(fleet: Fleet, mode: TuningMode) -> list[str]:
    """OpenSSH on every host, 64 at a time; the request is one file per host, the agent's program in front."""
    folder = fleet.folder / f"requests-{mode}"
    if not folder.is_dir():
        folder.mkdir()
        for name, request in _requests(fleet, mode).items():
            asked = framed_request({"deadline_s": TIMEOUT_S, **request})
            (folder / name).write_bytes(agent_program(request) + asked)
        (folder / "names").write_text("\n".join(fleet.names))
        # the end of standard input ends the request here, so nothing has to hold it open
        (folder / "command").write_text(agent_command(sudo=True, mode="piped"))
    script = (
        f'ssh -F {fleet.lab.ssh_config} "$1" "$(cat {folder}/command)" <{folder}/"$1" >{folder}/"$1".out'
        f' && grep -q items {folder}/"$1".out'
    )
    words = ["xargs", "-a", str(folder / "names"), "-P", str(PARALLEL), "-I", "{}"]
    return [*fleet.lab.enter, *words, "sh", "-c", script, "sh", "{}"]


def _requests(fleet: Fleet, mode: TuningMode) -> dict[str, Request]:
    given = {"file": str(fleet.stack), "inventory": str(fleet.inventory)}
    catalog = Catalog()
    compiled = compile_for_hosts(Options(given), catalog)
    states = host_states(compiled, catalog, render=tuning_state)
    recorder = _Recorder()
    tune(recorder, states, TuningOrder(mode=mode, timeout_s=TIMEOUT_S))
    return recorder.requests
