"""What `fab plan` says of secrets: their names and ways, and no value."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from infra.catalog.load import Catalog
from infra.plan.compile import compile_file
from infra.plan.process import Plan
from infra.render.host_state import host_state
from infra.render.secret_listing import secret_listing
from infra.render.wanted_tuning import Tuning
from tests.fab_process import run_fab

ALL = "secrets: {hf_token: {env: MY_TOKEN}, api_key: {file: key.txt}}\n"
EDGE = "edge: {name: haproxy, keys: {file: keys}, tls: none}\n"


def plan_of(folder: Path, catalog: Catalog, text: str) -> Plan:
    file = folder / "mine.yaml"
    file.write_text(text)
    return compile_file(str(file), catalog=catalog).plan


def test_without_secrets_nothing_is_said(catalog: Catalog) -> None:
    assert secret_listing(compile_file("gb200-2p1d", catalog=catalog).plan, catalog) == ""


@pytest.mark.parametrize("stack", ["gb200-2p1d", "h200-tp8", "b200-sglang-tp8", "a3-2p1d"])
@pytest.mark.parametrize("edge", ["", EDGE], ids=["", "edge"])
def test_a_secret_is_said_to_go_exactly_where_hosts_get_it(
    catalog: Catalog, tmp_path: Path, stack: str, edge: str
) -> None:
    plan = plan_of(tmp_path, catalog, f"extends: {stack}\n{ALL}{edge}")
    tuning = Tuning(profile=catalog.tuning(plan.tuning))
    there: dict[str, list[str]] = {}
    for host in plan.hosts:
        state = host_state(plan, host.name, tuning=tuning, catalog=catalog)
        for item in state.items:
            if "secret" in item.details:
                there.setdefault(str(item.target), []).append(host.name)
    said = {
        match[1]: match[2].split(", ")
        for match in re.finditer(r"goes to (\S+) \([^)]*\) on (.*)", secret_listing(plan, catalog))
    }
    assert said == there
    assert there


def test_a_secret_that_no_program_takes_is_said_to_stay(catalog: Catalog, tmp_path: Path) -> None:
    plan = plan_of(tmp_path, catalog, f"extends: b200-sglang-tp8\n{ALL}")
    assert (
        f"  api_key: from the file {tmp_path}/key.txt\n"
        "    no program of this plan takes it: it stays on this machine\n"
    ) in secret_listing(plan, catalog)


def test_in_pods_it_is_a_key_of_the_stacks_secret(catalog: Catalog, tmp_path: Path) -> None:
    plan = plan_of(tmp_path, catalog, f"extends: k8s-gb200-2p1d\n{ALL}")
    assert "goes to key api_key of the Secret mine-secrets, for pods on" in secret_listing(
        plan, catalog
    )


def test_the_plan_names_secrets_and_shows_no_value(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"extends: h200-tp8\n{ALL}")
    (tmp_path / "key.txt").write_text("a-very-secret-key")
    done = run_fab("plan", "--file", str(file))
    assert done.returncode == 0, done.stderr
    assert "  api_key: from the file" in done.stdout
    assert "  hf_token: from the variable MY_TOKEN" in done.stdout
    assert "a-very-secret-key" not in done.stdout + done.stderr
