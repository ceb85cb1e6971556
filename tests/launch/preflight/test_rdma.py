"""The HCA ports of a host, and which of them are its fabric."""

from __future__ import annotations

from dataclasses import replace

from infra.catalog.load import Catalog
from infra.launch.preflight.rdma import rails, read_ports
from tests.launch.preflight.scenes import change, healthy, troubles


def port(
    name: str, *, rate: str = "400 Gb/sec (4X NDR)", layer: str = "Ethernet", **changes: str
) -> dict[str, str]:
    folder = f"/sys/class/infiniband/{name}/ports/1"
    values = {
        "state": "4: ACTIVE",
        "phys_state": "5: LinkUp",
        "rate": rate,
        "link_layer": layer,
        "gids/0": "fe80:0000:0000:0000:0000:00ff:fe00:0001",
        "gid_attrs/types/0": "RoCE v2",
        "gids/3": "0000:0000:0000:0000:0000:ffff:0a00:0001",
        "gid_attrs/types/3": "RoCE v2",
        **changes,
    }
    return {f"{folder}/{key}": f"{value}\n" for key, value in values.items()}


def test_a_port_and_its_gid_are_read() -> None:
    (found,) = read_ports(port("mlx5_0"))
    assert (found.name, found.is_active, found.rate_gbps, found.gid_index) == (
        "mlx5_0:1",
        True,
        400.0,
        3,
    )


def test_a_port_that_is_down_or_has_no_v4_gid_is_told() -> None:
    (down,) = read_ports(port("mlx5_0", state="1: DOWN", phys_state="3: Disabled"))
    assert (down.is_active, down.state) == (False, "DOWN")
    gidless = port("mlx5_0", **{"gids/3": "0000:0000:0000:0000:0000:0000:0000:0000"})
    assert read_ports(gidless)[0].gid_index is None
    assert read_ports({"/sys/class/infiniband/mlx5_0/ports/1/state": "x"})[0].is_active is False
    assert read_ports({}) == ()


def test_the_fabric_is_what_is_fastest_and_no_efa() -> None:
    files = {
        **port("mlx5_0"),
        **port("mlx5_1"),
        **port("mlx5_bond", rate="100 Gb/sec (4X EDR)"),
        **port("rdmap0s6", rate="400 Gb/sec", layer="Unspecified"),
    }
    assert [found.name for found in rails(read_ports(files))] == ["mlx5_0:1", "mlx5_1:1"]
    assert rails(()) == ()


def test_an_hca_that_engines_are_told_to_use_must_be_active(catalog: Catalog) -> None:
    scene = healthy("gb200-2p1d", catalog)
    processes = tuple(
        replace(process, env={**process.env, "UCX_NET_DEVICES": "mlx5_0:1"})
        for process in scene.plan.processes
    )
    scene = replace(scene, plan=replace(scene.plan, processes=processes))
    for host in scene.hosts:
        scene = change(scene, host, files={**scene.hosts[host].files, **port("mlx5_0")})
    assert troubles(scene) == []
    down = {**scene.hosts["decode-1"].files, **port("mlx5_0", state="2: INIT")}
    assert troubles(change(scene, "decode-1", files=down)) == [
        ("block", "decode-1", "rdma-devices")
    ]
    slow = {**scene.hosts["decode-1"].files, **port("mlx5_0", rate="200 Gb/sec (4X HDR)")}
    assert troubles(change(scene, "decode-1", files=slow)) == [("warn", "decode-1", "rdma-devices")]
    gone = healthy("gb200-2p1d", catalog).hosts["decode-1"].files
    assert troubles(change(scene, "decode-1", files=gone)) == [
        ("block", "decode-1", "rdma-devices")
    ]
