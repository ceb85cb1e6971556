"""The same kind of work for the rivals: three sysctls, the governor, and a file that keeps them over a reboot.

It is less than what `fab tune-hosts` does (no rollback record, no unit for what sysctl.d cannot hold, nothing
read back), so the comparison favours them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PYINFRA = "pyinfra==3.10.0"
CACHE = Path("~/.cache/moe-infra/benchmarks").expanduser()

PYINFRA_DEPLOY = """\
from io import StringIO
from pyinfra.operations import files, server

TEXT = "vm.swappiness = 0\\nkernel.numa_balancing = 0\\nvm.zone_reclaim_mode = 0\\n"
files.put(name="file", src=StringIO(TEXT), dest="/etc/sysctl.d/60-bench.conf", mode="644", _sudo=True)
for key in ("vm.swappiness", "kernel.numa_balancing", "vm.zone_reclaim_mode"):
    server.sysctl(name=key, key=key, value="0", _sudo=True)
server.shell(
    name="governor",
    commands=["for f in /sys/devices/system/cpu/cpufreq/policy*/scaling_governor; do"
              " [ $(cat $f) = performance ] || echo performance > $f; done"],
    _sudo=True,
)
"""

PLAYBOOK = """\
- hosts: all
  gather_facts: false
  become: true
  tasks:
    - name: file
      ansible.builtin.copy:
        dest: /etc/sysctl.d/60-bench.conf
        mode: "0644"
        content: |
          vm.swappiness = 0
          kernel.numa_balancing = 0
          vm.zone_reclaim_mode = 0
    - name: sysctls
      ansible.builtin.shell: |
        changed=0
        for pair in vm/swappiness=0 kernel/numa_balancing=0 vm/zone_reclaim_mode=0; do
          file=/proc/sys/${pair%%=*}
          [ "$(cat $file)" = "${pair##*=}" ] || { echo "${pair##*=}" > $file; changed=1; }
        done
        echo changed=$changed
      register: sysctls
      changed_when: "'changed=1' in sysctls.stdout"
    - name: governor
      ansible.builtin.shell: |
        for f in /sys/devices/system/cpu/cpufreq/policy*/scaling_governor; do
          [ "$(cat $f)" = performance ] || { echo performance > $f; echo changed=1; }
        done
      register: governor
      changed_when: "'changed=1' in governor.stdout"
"""
ANSIBLE_CFG = """\
[defaults]
host_key_checking = true
retry_files_enabled = false
[ssh_connection]
pipelining = true
ssh_args = -o ControlMaster=auto -o ControlPersist=60s
"""


def pyinfra_program() -> Path | None:
    """Pyinfra in a virtual environment of the benchmark's own, None when it cannot be installed."""
    folder = CACHE / PYINFRA.replace("==", "-")
    program = folder / "bin" / "pyinfra"
    if program.exists():
        return program
    try:
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, capture_output=True)
        pip = [str(folder / "bin" / "pip"), "install", "-q", PYINFRA]
        subprocess.run(pip, check=True, capture_output=True, timeout=300)
    except (subprocess.SubprocessError, OSError) as error:
        print(f"pyinfra is left out: {error}", file=sys.stderr)
        return None
    return program


def pyinfra_command(program: Path, folder: Path, names: tuple[str, ...], config: Path) -> list[str]:
    """The command that does the work on these hosts."""
    (folder / "deploy.py").write_text(PYINFRA_DEPLOY)
    settings = {"ssh_config_file": str(config), "ssh_known_hosts_file": str(_known_hosts(config))}
    hosts = [(name, settings) for name in names]
    (folder / "inventory.py").write_text(f"hosts = {hosts!r}\n")
    words = [str(program), "--yes", "--parallel", str(len(names))]
    return [*words, str(folder / "inventory.py"), str(folder / "deploy.py")]


def ansible_command(folder: Path, inventory: Path, names: tuple[str, ...]) -> list[str]:
    """The command that does the work on these hosts; it runs in the folder, whose ansible.cfg it takes."""
    (folder / "playbook.yml").write_text(PLAYBOOK)
    (folder / "ansible.cfg").write_text(ANSIBLE_CFG)
    program = Path(sys.executable).with_name("ansible-playbook")
    words = [str(program), "-i", str(inventory), "-f", str(len(names)), "--limit", ",".join(names)]
    return [*words, str(folder / "playbook.yml")]


def _known_hosts(config: Path) -> str:
    line = next(line for line in config.read_text().splitlines() if "UserKnownHostsFile" in line)
    return line.split()[1]
