"""`--plan FILE`: a plan document, edited by hand, is judged by the rules and by the simulation."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infra.rehearsal.lab.starting import attach_lab
from infra.rehearsal.lab.user_range import FIRST
from tests.rehearsal.command import Shell

pytestmark = [pytest.mark.lab]

Plan = dict[str, Any]


def argument(plan: Plan, process: str, flag: str, value: str) -> None:
    """Change the value of a flag of a process."""
    (argv,) = [each["argv"] for each in plan["processes"] if each["id"] == process]
    argv[argv.index(flag) + 1] = value


@pytest.fixture
def plan_file(shell: Shell, tmp_path: Path) -> Callable[[Callable[[Plan], None]], Path]:
    """A plan of two ranks over two hosts, as `fab plan --json` prints it, after a hand has edited it."""

    def write(edit: Callable[[Plan], None]) -> Path:
        stack = str(Path(__file__).parents[1] / "stacks" / "vllm-pd-mooncake.yaml")
        plan = shell.fab("plan", "--file", stack, "--json").document
        edit(plan)
        path = tmp_path / "plan.json"
        path.write_text(json.dumps(plan))
        return path

    return write


def leave_alone(_plan: Plan) -> None:
    """No edit."""


def misspell_a_flag(plan: Plan) -> None:
    (argv,) = [each["argv"] for each in plan["processes"] if each["id"] == "decode-0/0"]
    argv.append("--enable-expert-paralel")


@pytest.mark.slow  # a whole rehearsal
def test_a_plan_as_it_was_printed_serves_at_its_own_addresses(
    plan_file: Callable[[Callable[[Plan], None]], Path], shell: Shell
) -> None:
    file = plan_file(leave_alone)
    assert shell.fab("check", "--plan", str(file)).code == 0
    done = shell.fab("rehearse", "--plan", str(file), "--json")
    assert done.code == 0, done.err
    report = done.document
    assert report["stack"] == "vllm-pd-mooncake"
    assert set(report["served_by"]) == {"prefill", "decode"}
    assert "the plan's own addresses" in done.err
    shell.assert_nothing_left()


@pytest.mark.slow  # starts, and fails
def test_a_spoilt_plan_is_refused_by_the_rules_and_by_the_simulation(
    plan_file: Callable[[Callable[[Plan], None]], Path], shell: Shell
) -> None:
    file = str(plan_file(misspell_a_flag))
    checked = shell.fab("check", "--plan", file, "--json")
    checked.refused(2)
    assert "--enable-expert-paralel" in json.dumps(checked.document["problems"])
    done = shell.fab("rehearse", "--plan", file, "--json")
    done.refused(5, "decode-0/0", "--enable-expert-paralel")
    assert "error" in done.document["steps"][0]["detail"]
    shell.assert_nothing_left()


ROUTER_APART = """\
# prefill host
VLLM_NIXL_SIDE_CHANNEL_HOST=192.0.2.1 vllm serve moonshotai/Kimi-K2.5 --port 8000 -tp 8 --max-model-len 32768 \\
  --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_producer"}'
# decode host
VLLM_NIXL_SIDE_CHANNEL_HOST=192.0.2.2 vllm serve moonshotai/Kimi-K2.5 --port 8000 -tp 8 --max-model-len 32768 \\
  --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_consumer"}'
# router host
vllm-router --vllm-pd-disaggregation --prefill http://192.0.2.1:8000 --decode http://192.0.2.2:8000 \\
  --host 0.0.0.0 --port 9000
"""


@pytest.mark.slow  # a whole rehearsal
def test_an_imported_plan_serves_with_a_router_of_its_own_and_a_model_of_the_hub(
    shell: Shell, tmp_path: Path
) -> None:
    file, plan = tmp_path / "pd.sh", tmp_path / "plan.json"
    file.write_text(ROUTER_APART)
    told = ("--engine", "vllm:0.22.1", "--accelerator", "h200")
    assert shell.fab("import", str(file), *told, "--to-plan", str(plan)).code == 0
    assert [host["roles"] for host in json.loads(plan.read_text())["hosts"]][2] == []
    done = shell.fab("rehearse", "--plan", str(plan), "--json")
    assert done.code == 0, done.err
    assert set(done.document["served_by"]) == {"prefill", "decode"}
    shell.assert_nothing_left()


def test_a_plan_that_is_none_is_refused(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    for text in ("{", "[]", '{"schema_version": 1}'):
        file.write_text(text)
        done = shell.fab("rehearse", "--plan", str(file), "--json")
        done.refused(2, "plan.json")
        assert done.document["ok"] is False
    shell.fab("rehearse", "--plan", str(tmp_path / "none.json")).refused(2, "none.json")
    shell.fab("rehearse", "--plan", str(file), "--stack", "h200-tp8").refused(2)
    shell.assert_nothing_left()


@pytest.mark.slow  # starts hosts
def test_a_rehearsal_ends_after_the_wished_step(shell: Shell) -> None:
    done = shell.fab("rehearse", "--stack", "a3-2p1d", "--to-step", "plan", "--json")
    assert done.code == 0, done.err
    assert [step["name"] for step in done.document["steps"]] == ["check", "plan"]
    said = shell.fab("rehearse", "--stack", "a3-2p1d", "--to-step", "tune")
    assert said.code == 0, said.err
    assert "kunpeng-ascend on 4 hosts" in said.out
    assert "First token" not in said.out
    done = shell.fab("rehearse", "--stack", "a3-2p1d", "--to-step", "tunes")
    done.refused(2, "tune")
    shell.assert_nothing_left()


@pytest.mark.slow  # starts hosts
def test_the_hosts_of_a_given_plan_hold_nothing_of_the_machine(
    plan_file: Callable[[Callable[[Plan], None]], Path], shell: Shell
) -> None:
    def run_a_shell(plan: Plan) -> None:
        """What the gate lets through, as every argument is the process's own: the renderer keeps it one."""
        plan["processes"][0]["env"]["VLLM_NOTE"] = "'; touch /etc/moe-canary; '"

    file = plan_file(run_a_shell)
    done = shell.fab("rehearse", "--plan", str(file), "--to-step", "start", "--keep", "--json")
    assert done.code == 0, done.err
    lab = attach_lab(done.document["id"])
    try:
        said = lab.run("prefill-0", ["cat", "/proc/self/uid_map", "/proc/1/uid_map"]).stdout.split()
        assert said == [b"0", str(FIRST).encode(), b"65536"] * 2
        names = [argv for _, argv in lab.processes("prefill-0") if "serve" in argv]
        assert names
        assert lab.run("prefill-0", ["test", "-e", "/etc/moe-canary"]).returncode == 1
        lab.run("prefill-0", ["touch", "/etc/moe-canary"])
        assert not Path("/etc/moe-canary").exists()
    finally:
        lab.stop()
    shell.assert_nothing_left()
