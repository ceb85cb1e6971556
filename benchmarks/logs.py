"""`fab logs` of 20 MB per host on two lab hosts, beside its floors and Fabric's own reader, all in one run.

python benchmarks/logs.py            # the table of docs/performance.md, three minutes at most
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
FAB = str(Path(sys.executable).parent / "fab")
STACK = "a2-2n-dp4tp4"
HOSTS = ("unified-0", "unified-1")
SIZE = 20_000_000
RUNS = 5
# Fabric's reader is quadratic in the output: a minute and more for 20 MB. It is not waited for longer.
RIVAL_S = 100.0
UNIT = "moe-big-engine@0"
LINE = (
    "(EngineCore_DP0 pid=411) INFO 11-20 14:00:00 [metrics.py:101] Avg prompt throughput: 812.3 tokens/s, "
    "Avg generation throughput: 4310.2 tokens/s, Running: 33 reqs, Waiting: 0 reqs"
)
FILL = f"""
sudo mkdir -p /var/log/journal /etc/systemd/journald.conf.d /etc/moe-infra/big
printf '[Journal]\\nStorage=persistent\\nSystemMaxUse=2G\\n' | sudo tee /etc/systemd/journald.conf.d/zz.conf
sudo systemctl restart systemd-journald; sudo journalctl --flush
python3 -c "
n = i = 0
while n < {SIZE}:
    s = '{LINE} %d' % i; print(s); n += len(s) + 1; i += 1" >/tmp/big
sudo systemd-run --wait -q --unit={UNIT} -p LogRateLimitIntervalSec=0 -p StandardOutput=journal cat /tmp/big
sudo journalctl --sync
echo '{{"processes": [{{"id": "'$(hostname)'/0", "unit": "{UNIT}.service", "role": "unified"}}]}}' |
  sudo tee /etc/moe-infra/big/release.json
"""
FABRIC = """
import sys, fabric
config = fabric.Config(lazy=True, runtime_ssh_path=sys.argv[1])
config.load_ssh_config()
fabric.Connection(sys.argv[2], config=config).run("cat /tmp/big", hide=True, in_stream=False)
"""


def main() -> None:
    """Start two hosts, fill their journals, measure every row in turn."""
    started = _run([FAB, "rehearse", "--stack", STACK, "--keep", "--to-step", "hosts", "--json"])
    document = json.loads(started.stdout)
    try:
        _measure(document["ssh_config"], document["inventory"])
    finally:
        _run([FAB, "rehearse", "--stop", document["id"]])


def _measure(ssh_config: str, inventory: str) -> None:
    for host in HOSTS:
        _run(["ssh", "-F", ssh_config, host, FILL])
    logs = [FAB, "logs", "--stack", "big", "--inventory", inventory]
    rows = {
        "`ssh cat` of 20 MB, both hosts at once (floor of the wire)": _on_both(
            ssh_config, "cat /tmp/big"
        ),
        "`ssh journalctl -o cat`, both at once (floor of journald, text alone)": _on_both(
            ssh_config, f"sudo journalctl -q -o cat -u {UNIT}"
        ),
        "`ssh journalctl -o export`, both at once (floor of journald, with times and cursors)": _on_both(
            ssh_config,
            f"sudo journalctl -q -o export --output-fields=MESSAGE,_SYSTEMD_UNIT -u {UNIT}",
        ),
        "`fab logs --lines 1` (start-up, connections, agents)": [[*logs, "--lines", "1"]],
        "`fab logs --since`, 2 x 20 MB, merged": [[*logs, "--since", "1 day ago"]],
    }
    seconds: dict[str, list[float]] = {name: [] for name in rows}
    for _ in range(RUNS):
        for name, commands in rows.items():
            seconds[name].append(_time(commands))
    floor = min(seconds[next(iter(rows))])
    print("| what | best s | median s | against `ssh cat` |")
    print("|---|---|---|---|")
    for name, found in seconds.items():
        print(
            f"| {name} | {min(found):.2f} | {statistics.median(found):.2f} | {min(found) / floor:.1f} |"
        )
    rival = _rival(ssh_config)
    took = f"{rival:.0f}" if rival is not None else f"> {RIVAL_S:.0f}"
    against = f"{rival / floor:.0f}" if rival is not None else f"> {RIVAL_S / floor:.0f}"
    print(f"| Fabric's `Connection.run`, 20 MB of one host | {took} | {took} | {against} |")


def _on_both(ssh_config: str, command: str) -> list[list[str]]:
    return [["ssh", "-n", "-F", ssh_config, host, command] for host in HOSTS]


def _time(commands: list[list[str]]) -> float:
    """Seconds until all of them, started together, have ended well."""
    begun = time.perf_counter()
    running = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=PROJECT)
        for command in commands
    ]
    codes = [each.wait() for each in running]
    if any(codes):
        raise SystemExit(f"{commands[0]} left with {codes}")
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
