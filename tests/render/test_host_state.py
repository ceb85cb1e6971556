from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from infra.agent.kinds.table import KINDS as AGENT_KINDS
from infra.catalog.load import Catalog
from infra.errors import HostsFailed, StackError
from infra.inventory.book import documentation_hosts
from infra.plan.compile import compile_file
from infra.plan.process import Plan
from infra.render.environment_file import environment_file, is_plain, odd_variables
from infra.render.host_paths import stack_folder, unit_name, watch_config, watch_unit
from infra.render.host_state import host_state, tuning_state
from infra.render.image_origin import with_image_origin
from infra.render.items import HostState
from infra.render.process_launch import runnable_image
from infra.render.release_record import read_release
from infra.render.reserved_ports import (
    RESERVED_PORTS_ID,
    ports_at_risk,
    ports_to_reserve,
    read_ports,
    reserved_ports_text,
)
from infra.render.wanted_tuning import Tuning
from tests.needed import need_program

KINDS = set(AGENT_KINDS)
STACKS = ("gb200-2p1d", "a3-2p1d", "h200-sglang-tp8", "mi300x-tp8", "vllm-podman", "vllm-native")


def state_of(
    stack: str, catalog: Catalog, host: int = 0, enable: tuple[str, ...] = ()
) -> tuple[Plan, HostState]:
    plan = compile_file(stack, catalog=catalog).plan
    tuning = Tuning(profile=catalog.tuning(plan.tuning), enable=enable)
    return plan, host_state(plan, plan.hosts[host].name, tuning=tuning, catalog=catalog)


def details(state: HostState, item_id: str) -> dict[str, object]:
    return next(item for item in state.items if item.id == item_id).as_document()


@pytest.mark.parametrize("stack", STACKS)
def test_the_document_is_what_the_agent_reads(stack: str, catalog: Catalog) -> None:
    plan, state = state_of(stack, catalog)
    document = state.as_document()
    assert json.loads(json.dumps(document)) == document
    assert (document["stack"], document["release"]) == (stack, plan.hash)
    assert {item.kind for item in state.items} <= KINDS
    ids = [item.id for item in state.items]
    assert len(ids) == len(set(ids))
    assert all(item.why for item in state.items)


@pytest.mark.parametrize("stack", STACKS)
def test_tuning_can_be_rendered_by_itself(stack: str, catalog: Catalog) -> None:
    plan, state = state_of(stack, catalog)
    tuning = Tuning(profile=catalog.tuning(plan.tuning))
    alone = tuning_state(plan, state.host, tuning=tuning, catalog=catalog)
    assert alone == replace(state, items=state.of_groups("tuning"))


@pytest.mark.parametrize("stack", STACKS)
def test_everything_lies_under_the_stacks_own_names(stack: str, catalog: Catalog) -> None:
    _, state = state_of(stack, catalog)
    for item in (item for item in state.of_groups("files") if item.kind == "file"):
        assert item.target.startswith(
            (f"/etc/moe-infra/{stack}/", f"/etc/systemd/system/moe-{stack}-")
        )


def test_every_process_of_the_host_has_its_files(catalog: Catalog) -> None:
    plan, state = state_of("gb200-2p1d", catalog)
    targets = {item.target for item in state.of_groups("files")}
    for process in plan.on_host("prefill-0"):
        index = process.id.rpartition("/")[2]
        assert f"/etc/moe-infra/gb200-2p1d/{process.kind}-{index}/launch" in targets
        assert unit_name(plan.stack, process) == f"moe-gb200-2p1d-{process.kind}@{index}.service"
    _, decode = state_of("gb200-2p1d", catalog, host=2)
    assert not any("router" in item.target for item in decode.of_groups("files"))


def test_same_plan_same_document(catalog: Catalog) -> None:
    assert (
        state_of("a3-2p1d", catalog)[1].as_document()
        == state_of("a3-2p1d", catalog)[1].as_document()
    )


def test_a_router_from_a_wheel_runs_natively_and_needs_no_image(catalog: Catalog) -> None:
    _, state = state_of("gb200-2p1d", catalog)
    launch = str(details(state, "file:/etc/moe-infra/gb200-2p1d/router-0/launch")["content"])
    assert "/opt/moe-infra/routers/vllm-router-0.1.17/bin" in launch
    assert "docker" not in launch
    unit = str(details(state, "file:/etc/systemd/system/moe-gb200-2p1d-router@.service")["content"])
    assert "EnvironmentFile=/etc/moe-infra/gb200-2p1d/router-%i/environment" in unit


def test_the_ascend_proxy_runs_in_the_engines_image(catalog: Catalog) -> None:
    plan, state = state_of("a3-2p1d", catalog)
    launch = str(details(state, "file:/etc/moe-infra/a3-2p1d/router-0/launch")["content"])
    assert plan.engine.image in launch
    assert "/dev/davinci" not in launch


def test_weights_are_those_that_commands_name(catalog: Catalog) -> None:
    _, state = state_of("a3-2p1d", catalog)
    assert [item.id for item in state.of_groups("weights")] == [
        "weights:kimi-k2.5-w4a8",
        "weights:kimi-k2.5-eagle3",
    ]
    assert all(item.target.startswith("/models/") for item in state.of_groups("weights"))


def test_native_hosts_need_no_image(catalog: Catalog) -> None:
    _, state = state_of("vllm-native", catalog)
    (item,) = state.of_groups("images")
    assert (item.kind, item.target) == ("environment", "/opt/moe-infra/engines/vllm-0.22.1")
    assert str(item.details["fix"]).endswith("/bin/pip install vllm==0.22.1")
    assert not any("cleanup" in item.target for item in state.items)


def test_a_pinned_image_is_started_by_its_tag_and_held_against_its_digest(catalog: Catalog) -> None:
    digest = "sha256:" + "a" * 64
    plan, _ = state_of("vllm-podman", catalog)
    pinned = replace(plan, engine=replace(plan.engine, image=f"quay.io/x/y:v1@{digest}"))
    tuning = Tuning(profile=catalog.tuning(plan.tuning))
    state = host_state(pinned, plan.hosts[0].name, tuning=tuning, catalog=catalog)
    item = next(item for item in state.items if item.kind == "image")
    assert (item.details["reference"], item.details["digest"]) == ("quay.io/x/y:v1", digest)
    scripts = [str(i.details["content"]) for i in state.items if i.target.endswith("/launch")]
    assert any("quay.io/x/y:v1" in script for script in scripts)
    assert not any(digest in script for script in scripts)
    assert runnable_image(f"x/y@{digest}") == f"x/y@{digest}"


def test_an_inventory_names_where_images_come_from(catalog: Catalog) -> None:
    _, state = state_of("vllm-podman", catalog)
    host = documentation_hosts(["a"]).hosts["a"]
    item = next(
        item
        for item in with_image_origin(state, replace(host, image_mirror="mirror:5000")).items
        if item.kind == "image"
    )
    assert (item.details["mirror"], "archive" in item.details) == ("mirror:5000", False)
    assert with_image_origin(state, host) == state


def test_reserved_ports_of_profile_and_plan_are_one_item(catalog: Catalog) -> None:
    _, state = state_of("a3-2p1d", catalog)
    ports = read_ports(str(details(state, RESERVED_PORTS_ID)["want"]))
    assert set(range(61000, 61016)) <= ports
    assert 60000 in ports


@pytest.mark.parametrize(
    ("name", "value", "ports"),
    [
        ("HCCL_IF_BASE_PORT", "40000", range(40000, 40032)),
        ("HCCL_HOST_SOCKET_PORT_RANGE", "45000-45040", range(45000, 45041)),
        ("HCCL_NPU_SOCKET_PORT_RANGE", "47000-47009", range(47000, 47010)),
    ],
)
def test_ports_of_hccl_that_variables_move_are_reserved_there(
    name: str, value: str, ports: range, catalog: Catalog
) -> None:
    plan = compile_file("a3-2p1d", catalog=catalog).plan
    moved = replace(
        plan,
        processes=tuple(
            replace(process, env={**process.env, name: value}) for process in plan.processes
        ),
    )
    tuning = Tuning(profile=catalog.tuning(plan.tuning))
    state = host_state(moved, plan.hosts[0].name, tuning=tuning, catalog=catalog)
    wanted = read_ports(str(details(state, RESERVED_PORTS_ID)["want"]))
    assert set(ports) <= wanted
    before = host_state(plan, plan.hosts[0].name, tuning=tuning, catalog=catalog)
    assert wanted == set(ports) | read_ports(str(details(before, RESERVED_PORTS_ID)["want"]))


def test_an_item_is_left_alone_until_the_stack_names_it(catalog: Catalog) -> None:
    _, state = state_of("gb200-2p1d", catalog)
    assert details(state, "sched.migration_cost_ns")["want"] is None
    _, named = state_of("gb200-2p1d", catalog, enable=("sched.migration_cost_ns",))
    assert details(named, "sched.migration_cost_ns")["want"] == "50000"
    with pytest.raises(StackError, match="has no item bogus"):
        state_of("gb200-2p1d", catalog, enable=("bogus",))


def test_secrets_stand_in_no_document(catalog: Catalog, tmp_path: Path) -> None:
    file = tmp_path / "keyed.yaml"
    file.write_text("extends: h200-tp8\nsecrets: {api_key: {env: KEY}, hf_token: {env: TOKEN}}\n")
    plan = compile_file(str(file), catalog=catalog).plan
    tuning = Tuning(profile=catalog.tuning(plan.tuning))
    state = host_state(plan, plan.hosts[0].name, tuning=tuning, catalog=catalog)
    item = details(state, "file:/etc/moe-infra/keyed/credentials/api_key")
    assert item["secret"] == "api_key"
    assert item["mode"] == "0600"
    assert "content" not in item
    unit = str(details(state, "file:/etc/systemd/system/moe-keyed-engine@.service")["content"])
    assert "LoadCredential=api_key:/etc/moe-infra/keyed/credentials/api_key" in unit


@pytest.mark.parametrize("name", ["../x", "a b", "", ".x", "x;y", "x/../y", "x" * 65])
def test_names_that_are_no_path_are_refused(name: str) -> None:
    with pytest.raises(StackError):
        stack_folder(name)


def test_the_record_is_read_back(catalog: Catalog) -> None:
    plan, state = state_of("gb200-2p1d", catalog)
    text = str(details(state, "file:/etc/moe-infra/gb200-2p1d/release.json")["content"])
    release = read_release("prefill-0", "gb200-2p1d", text)
    assert release.release == plan.hash
    assert [process.id for process in release.processes] == [
        p.id for p in plan.on_host("prefill-0")
    ]
    assert release.cleanup == "moe-gb200-2p1d-cleanup.service"
    for damaged in ("", "{}", "[]", '{"stack": 1}', text.replace('"unit"', '"uni"')):
        with pytest.raises(HostsFailed):
            read_release("prefill-0", "gb200-2p1d", damaged)


@pytest.mark.parametrize(
    ("want", "ports", "text"),
    [
        ("", (), ""),
        ("", (61000,), "61000"),
        ("50000,50005", (61000, 61001, 61002), "50000,50005,61000-61002"),
        ("100-102", (103,), "100-103"),
    ],
)
def test_reserved_ports_are_written_as_the_kernel_does(
    want: str, ports: tuple[int, ...], text: str
) -> None:
    assert reserved_ports_text(want, ports) == text


def test_only_ports_inside_the_kernels_range_are_at_risk(catalog: Catalog) -> None:
    plan, _ = state_of("a3-2p1d", catalog)
    processes = plan.on_host("prefill-0")
    assert ports_to_reserve(processes) == frozenset(range(61000, 61016))
    assert ports_at_risk(processes) == frozenset()


@pytest.mark.parametrize("value", ["", "a b", "{1,2}", "a=b", "#x", "ü", "$HOME", "a;b"])
def test_plain_values_stand_in_the_environment_file(value: str) -> None:
    assert is_plain("NAME", value)
    assert f"NAME={value}\n" in environment_file("x/0", {"NAME": value})


@pytest.mark.parametrize("value", ['"x"', "'", "a\\b", "a\nb", " x", "x ", "x\r"])
def test_values_that_readers_disagree_about_do_not(value: str) -> None:
    assert not is_plain("NAME", value)
    assert odd_variables({"NAME": value}) == {"NAME": value}
    assert "NAME" not in environment_file("x/0", {"NAME": value})


@pytest.mark.parametrize("stack", ["gb200-2p1d", "vllm-native", "vllm-podman"])
def test_units_pass_systemds_own_judgement(stack: str, catalog: Catalog, tmp_path: Path) -> None:
    need_program("systemd-analyze", "systemd")
    _, state = state_of(stack, catalog)
    launch = tmp_path / "launch"
    launch.write_text("#!/bin/sh\n")
    launch.chmod(0o755)
    for item in state.of_groups("files"):
        if not item.details.get("unit"):
            continue
        text = re.sub(
            r"ExecStart=/etc/\S+/(launch|program)",
            f"ExecStart={launch}",
            str(item.details["content"]),
        )
        name = Path(item.target).name.replace("@.", "@0.")
        unit = tmp_path / name
        unit.write_text(text)
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", "--generators=no", str(unit)],
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_a_watcher_knows_its_members_addresses_and_no_document_holds_its_key(
    catalog: Catalog,
) -> None:
    plan, state = state_of("gb200-2p1d", catalog)
    told = json.loads(str(details(state, f"file:{watch_config(plan.stack)}")["content"]))
    members = {name for group in told["groups"] for name in group["members"]}
    assert set(told["addresses"]) == members
    assert told["addresses"] == {name: plan.host(name).address for name in told["addresses"]}
    unit = details(state, f"file:/etc/systemd/system/{watch_unit(plan.stack)}")
    assert "LimitNOFILE=4096" in str(unit["content"])
    targets = [item.target for item in state.items]
    assert not [target for target in targets if target.endswith("/key")]
