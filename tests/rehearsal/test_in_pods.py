"""What runs in a pod is held against the plan, its variables with it."""

from __future__ import annotations

from infra.catalog.load import Catalog
from infra.plan.compile import compile_file
from infra.rehearsal.in_pods import other_variables

OWN = {"POD_IP": "192.0.2.7"}


def test_a_process_has_every_variable_of_the_plan(catalog: Catalog) -> None:
    process = compile_file("k8s-a3-2p1d", catalog=catalog).plan.processes[0]
    found = {name: value.replace("$(POD_IP)", "192.0.2.7") for name, value in process.env.items()}
    assert "192.0.2.7" in found.values()
    assert other_variables(process, OWN, {**found, "HOME": "/root"}) == []
    left_out = {name: value for name, value in found.items() if name != "HCCL_BUFFSIZE"}
    assert other_variables(process, OWN, left_out) == ["HCCL_BUFFSIZE"]
    assert other_variables(process, OWN, process.env) == [
        name for name, value in process.env.items() if "$(POD_IP)" in value
    ]
