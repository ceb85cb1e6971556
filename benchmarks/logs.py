"""`fab logs` of 20 MB per host on two lab hosts, beside its floors and Fabric's own reader, all in one run.

Both hosts write at the same time, as engines do: their lines are merged one by one. No two lines are alike.
Then the same with hosts that send through a token bucket (tc tbf), as over a wire between operator and hosts.

python benchmarks/logs.py            # the tables of docs/performance.md, three minutes at most
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from infra.remote.agent_call import agent_command, agent_input

PROJECT = Path(__file__).resolve().parents[1]
FAB = str(Path(sys.executable).parent / "fab")
STACK = "a2-2n-dp4tp4"
HOSTS = ("unified-0", "unified-1")
SIZE = 20_000_000
RUNS = 5
# Fabric's reader is quadratic in the output: a minute and more for 20 MB. It is not waited for longer.
RIVAL_S = 60.0
AGENT_S = 120.0
LINKS_MBIT = (1000, 200, 100)
LINK_RUNS = 3
CAT = "cat /tmp/big"
UNIT = "moe-big-engine@0"
RELEASE = "/etc/moe-infra/big/release.json"
# What engines write most; of 100 to 200 bytes, with numbers that differ from line to line.
WRITE = """
import random
chance, size = random.Random(1), 0
with open("/tmp/big", "w") as out:
    while size < SIZE:
        a, b, c, d = (chance.randrange(10 ** n) for n in (4, 5, 3, 2))
        size += out.write(chance.choice((
            f"(EngineCore_DP0 pid=411) INFO 11-20 14:{d % 60:02}:{a % 60:02} [metrics.py:101] Avg prompt "
            f"throughput: {a / 10} tokens/s, Avg generation throughput: {b / 10} tokens/s, Running: {c} reqs, "
            f"Waiting: {d} reqs, GPU KV cache usage: {c / 10}%\\n",
            f"(APIServer pid=380) INFO:     192.0.2.{d}:{b} - \\"POST /v1/chat/completions HTTP/1.1\\" 200 OK "
            f"{a} ms\\n",
            f"(EngineCore_DP0 pid=411) DEBUG 11-20 14:{d % 60:02}:{a % 60:02} [scheduler.py:{c}] scheduled request "
            f"chatcmpl-{chance.getrandbits(128):032x} with {a} tokens\\n",
        )))
"""
FILL = f"""
sudo mkdir -p /var/log/journal /etc/systemd/journald.conf.d /etc/moe-infra/big
printf '[Journal]\\nStorage=persistent\\nSystemMaxUse=2G\\n' | sudo tee /etc/systemd/journald.conf.d/zz.conf
sudo systemctl restart systemd-journald; sudo journalctl --flush
python3 - <<'END'
{WRITE.replace("SIZE", str(SIZE))}
END
sudo systemd-run --wait -q --unit={UNIT} -p LogRateLimitIntervalSec=0 -p StandardOutput=journal cat /tmp/big
sudo journalctl --sync
echo '{{"processes": [{{"id": "'$(hostname)'/0", "unit": "{UNIT}.service", "role": "unified"}}]}}' |
  sudo tee {RELEASE}
"""
FABRIC = """
import sys, fabric
config = fabric.Config(lazy=True, runtime_ssh_path=sys.argv[1])
config.load_ssh_config()
fabric.Connection(sys.argv[2], config=config).run("cat /tmp/big", hide=True, in_stream=False)
"""


@dataclass(frozen=True)
class Command:
    """One program of a row, and what it reads; its standard input stays open until it ends."""

    argv: list[str]
    stdin: bytes = b""


def main() -> None:
    """Start two hosts, fill their journals, measure every row in turn."""
    started = _run([FAB, "rehearse", "--stack", STACK, "--keep", "--to-step", "hosts", "--json"])
    document = json.loads(started.stdout)
    try:
        _measure(document["ssh_config"], document["inventory"])
    finally:
        _run([FAB, "rehearse", "--stop", document["id"]])


def _measure(ssh_config: str, inventory: str) -> None:
    _time(_on_both(ssh_config, FILL))
    logs = [FAB, "logs", "--stack", "big", "--inventory", inventory]
    request = {"operation": "logs", "record": RELEASE, "since": "1 day ago"}
    agent = agent_input(request, timeout_s=AGENT_S)
    journalctl = f"sudo journalctl -q -u {UNIT} -o"
    export = "export --output-fields=MESSAGE,_SYSTEMD_UNIT"
    start, whole = [*logs, "--lines", "1"], [*logs, "--since", "1 day ago"]
    rows = {
        "`ssh true`, both hosts at once": _on_both(ssh_config, "true"),
        "`ssh cat` of 20 MB (floor of the wire)": _on_both(ssh_config, CAT),
        "`ssh journalctl -o cat` (text alone)": _on_both(ssh_config, f"{journalctl} cat"),
        "`ssh journalctl -o export` (with times and cursors)": _on_both(
            ssh_config, f"{journalctl} {export}"
        ),
        "`ssh` with our agent (reads the files, with times and cursors)": _on_both(
            ssh_config, agent_command(sudo=True), agent
        ),
        "`fab logs --lines 1` (start-up, connections, agents)": [Command(start)],
        "`fab logs --since`, 2 x 20 MB, merged": [Command(whole)],
    }
    seconds = _in_turns(rows, RUNS)
    floor = min(seconds[list(rows)[1]])
    print("| what | best s | median s | against `ssh cat` |")
    print("|---|---|---|---|")
    for name, found in seconds.items():
        print(
            f"| {name} | {min(found):.2f} | {statistics.median(found):.2f} | {min(found) / floor:.1f} |"
        )
    rival = _rival(ssh_config)
    took = f"{rival:.0f}" if rival is not None else f"> {RIVAL_S:.0f}"
    against = f"{rival / floor:.0f}" if rival is not None else f"> {RIVAL_S / floor:.0f}"
    print(f"| Fabric's `Connection.run`, 20 MB of one host | {took} | {took} | {against} |\n")
    _measure_links(ssh_config, Command(start), Command(whole))


def _measure_links(ssh_config: str, start: Command, whole: Command) -> None:
    """Print the table of hosts that send no more than so much each."""
    print("| link of each host | `ssh cat` s | `ssh -C cat` s | `fab logs` s | of it start-up s |")
    print("|---|---|---|---|---|")
    for mbit in LINKS_MBIT:
        bucket = f"tbf rate {mbit}mbit burst 1m latency 100ms"
        _time(_on_both(ssh_config, f"sudo tc qdisc replace dev eth0 root {bucket}"))
        rows = {
            "cat": _on_both(ssh_config, CAT),
            "compressed": _on_both(ssh_config, CAT, options=("-C",)),
            "fab": [whole],
            "start": [start],
        }
        best = [f"{min(found):.2f}" for found in _in_turns(rows, LINK_RUNS).values()]
        print(f"| {mbit} Mbit/s | {' | '.join(best)} |")


def _in_turns(rows: dict[str, list[Command]], runs: int) -> dict[str, list[float]]:
    """Seconds of each run of each row; rows take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in rows}
    for _ in range(runs):
        for name, commands in rows.items():
            seconds[name].append(_time(commands))
    return seconds


def _on_both(
    ssh_config: str, command: str, stdin: bytes = b"", options: tuple[str, ...] = ()
) -> list[Command]:
    return [Command(["ssh", *options, "-F", ssh_config, host, command], stdin) for host in HOSTS]


def _time(commands: list[Command]) -> float:
    """Seconds until all of them, started together, have ended well."""
    begun = time.perf_counter()
    running = []
    for command in commands:
        child = subprocess.Popen(
            command.argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=PROJECT,
        )
        if child.stdin is not None:
            child.stdin.write(command.stdin)
            child.stdin.flush()
        running.append(child)
    codes = [child.wait() for child in running]
    if any(codes):
        raise SystemExit(f"{commands[0].argv} left with {codes}")
    return time.perf_counter() - begun


def _rival(ssh_config: str) -> float | None:
    """Seconds of Fabric's own reader; None when it took too long."""
    begun = time.perf_counter()
    try:
        subprocess.run(
            [sys.executable, "-c", FABRIC, ssh_config, HOSTS[0]],
            check=True,
            capture_output=True,
            timeout=RIVAL_S,
        )
    except subprocess.TimeoutExpired:
        return None
    return time.perf_counter() - begun


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=PROJECT
    )


if __name__ == "__main__":
    main()
