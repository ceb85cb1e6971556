"""The vendors' tools, as parsers and people meet them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from infra.launch.preflight.nvidia import parse_diagnosis
from infra.rehearsal.standins import (
    amd_tools,
    card_tools,
    collective_test,
    dcgmi,
    hccn_tool,
    npu_smi,
    nvidia_imex,
    nvidia_smi,
    prepare_devices,
)

HostTool = Callable[..., None]
HostShell = Callable[..., CompletedProcess[str]]


def test_a_query_prints_csv_with_units_and_a_header(
    host_tool: HostTool, capsys: pytest.CaptureFixture[str]
) -> None:
    host_tool("nvidia", num_devices=2)
    query = "--query-gpu=index,name,memory.total,persistence_mode"
    assert nvidia_smi.main(["nvidia-smi", query, "--format=csv"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "index, name, memory.total [MiB], persistence_mode",
        "0, NVIDIA GB200, 189471 MiB, Disabled",
        "1, NVIDIA GB200, 189471 MiB, Disabled",
    ]


def test_header_and_units_can_be_left_out(
    host_tool: HostTool, capsys: pytest.CaptureFixture[str]
) -> None:
    host_tool("nvidia")
    words = ["nvidia-smi", "-i", "1", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    assert nvidia_smi.main(words) == 0
    assert capsys.readouterr().out == "189471\n"


def test_an_unknown_field_is_named_and_leaves_with_2(
    host_tool: HostTool, capsys: pytest.CaptureFixture[str]
) -> None:
    host_tool("nvidia")
    assert nvidia_smi.main(["nvidia-smi", "--query-gpu=name,foo", "--format=csv"]) == 2
    assert capsys.readouterr().out == 'Field "foo" is not a valid field to query.\n\n'


def test_an_unknown_option_is_refused(host_tool: HostTool) -> None:
    host_tool("nvidia")
    assert nvidia_smi.main(["nvidia-smi", "--frobnicate"]) == 255


def test_a_used_device_shows_its_process(
    host_tool: HostTool, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    host_tool("nvidia")
    device = tmp_path / "devices" / "2"
    device.parent.mkdir()
    with device.open("w") as held:
        held.write(f"{os.getpid()} 12345")
        held.flush()
        query = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader"]
        assert nvidia_smi.main(query) == 0
        assert capsys.readouterr().out == f"{os.getpid()}, 12345 MiB\n"
    assert nvidia_smi.main(query) == 0
    assert capsys.readouterr().out == ""


def test_persistence_mode_lasts_until_the_next_boot(
    host_tool: HostTool, capsys: pytest.CaptureFixture[str]
) -> None:
    host_tool("nvidia")
    query = ["nvidia-smi", "-i", "0", "--query-gpu=persistence_mode", "--format=csv,noheader"]
    assert nvidia_smi.main(["nvidia-smi", "-pm", "1"]) == 0
    capsys.readouterr()
    nvidia_smi.main(query)
    assert capsys.readouterr().out == "Enabled\n"


def test_faults_show_where_the_real_tool_shows_them(
    host_tool: HostTool, capsys: pytest.CaptureFixture[str]
) -> None:
    faults = {
        "ecc_uncorrected": {"1": 3},
        "nvlink_inactive": {"0": [4]},
        "fabric_state": "In Progress",
        "gpu_lost": [3],
    }
    host_tool("nvidia", faults=faults)
    query = "--query-gpu=ecc.errors.uncorrected.volatile.total"
    nvidia_smi.main(["nvidia-smi", query, "--format=csv,noheader"])
    assert capsys.readouterr().out.split() == ["0", "3", "0"]
    nvidia_smi.main(["nvidia-smi", "nvlink", "-s"])
    assert "\t Link 4: <inactive>\n" in capsys.readouterr().out
    nvidia_smi.main(["nvidia-smi", "-q"])
    assert f"{'        State':<55}: In Progress" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("faults", "status"), [({}, "UP"), ({"imex_down": ["192.0.2.2"]}, "DEGRADED")]
)
def test_the_imex_domain_is_up_when_every_node_is(
    host_tool: HostTool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    faults: dict[str, list[str]],
    status: str,
) -> None:
    host_tool("nvidia", faults=faults)
    (tmp_path / "run").mkdir()
    (tmp_path / "run/imex-nodes").write_text("192.0.2.1\n192.0.2.2\n")
    assert nvidia_imex.main(["nvidia-imex-ctl", "-N", "-j"]) == 0
    domain = json.loads(capsys.readouterr().out)
    assert domain["status"] == status
    assert [node["host"] for node in domain["nodes"].values()] == ["192.0.2.1", "192.0.2.2"]
    nvidia_imex.main(["nvidia-imex-ctl", "-q"])
    assert capsys.readouterr().out == "READY\n"


def test_the_imex_daemon_knows_the_list_that_it_has_read(
    host_tool: HostTool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A list that is written without a restart is nobody's, and without a daemon there is nobody to ask."""
    host_tool("nvidia")
    assert nvidia_imex.main(["nvidia-imex-ctl", "-N", "-j"]) == 1
    assert nvidia_imex.main(["nvidia-imex-ctl", "-q"]) == 1
    assert capsys.readouterr().out == ""
    (tmp_path / "run").mkdir()
    (tmp_path / "run/imex-nodes").write_text("192.0.2.1\n")
    assert nvidia_imex.main(["nvidia-imex-ctl", "-N", "-j"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "DEGRADED"


@pytest.mark.parametrize(
    ("changes", "exit_code", "status"),
    [
        ({"persistence_mode": True}, 0, "Pass"),
        ({"persistence_mode": False}, 226, "Warn"),
        ({"persistence_mode": True, "faults": {"diagnosis": {"1": [9]}}}, 226, "Fail"),
        ({"persistence_mode": False, "faults": {"diagnosis": {"1": [118]}}}, 205, "Fail"),
    ],
)
def test_dcgmi_tells_what_the_first_level_finds(
    changes: dict[str, Any],
    exit_code: int,
    status: str,
    host_tool: HostTool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A warning is a failure in JSON, as the real one writes it: preflight tells them apart by the errors' numbers."""
    host_tool("nvidia", num_devices=2, **changes)
    assert dcgmi.main(["dcgmi", "diag", "-r", "1", "-j"]) == exit_code
    said = capsys.readouterr().out
    assert parse_diagnosis(said) == {"software": status}
    (test,) = json.loads(said)["DCGM Diagnostic"]["test_categories"][0]["tests"]
    told = {one["status"] for one in (*test["results"], test["test_summary"])}
    assert told == {"Pass" if status == "Pass" else "Fail"}


def test_dcgmi_tells_people_in_a_table_and_other_levels_are_refused(
    host_tool: HostTool, capsys: pytest.CaptureFixture[str]
) -> None:
    host_tool("nvidia", num_devices=1)
    assert dcgmi.main(["dcgmi", "diag", "-r", "1"]) == 226
    lines = capsys.readouterr().out.splitlines()
    assert {len(line) for line in lines[1:]} == {78}
    assert "| software                  | Warn                                           |" in lines
    assert "| Warning: GPU0             | Persistence Mode: Persistence mode for GPU 0   |" in lines
    assert dcgmi.main(["dcgmi", "diag", "-r", "3", "-j"]) == 1
    assert dcgmi.main(["dcgmi", "discovery", "-l"]) == 1


def test_amd_smi_prints_one_entry_per_device(
    host_tool: HostTool, capsys: pytest.CaptureFixture[str]
) -> None:
    host_tool("amd")
    assert amd_tools.main(["amd-smi", "static", "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)
    assert len(entries) == 8
    assert entries[0]["asic"]["market_name"] == "AMD Instinct MI355X"
    assert entries[0]["partition"]["accelerator_partition"] == "SPX"
    assert amd_tools.main(["amd-smi", "frobnicate"]) == 255
    assert amd_tools.main(["amd-smi", "list", "--frobnicate"]) == 254
    assert amd_tools.main(["rocm-smi", "--frobnicate"]) == 2


def test_npu_smi_tells_card_and_die(
    host_tool: HostTool, capsys: pytest.CaptureFixture[str]
) -> None:
    host_tool("ascend")
    assert npu_smi.main(["npu-smi", "info", "-t", "spod-info", "-i", "2", "-c", "1"]) == 0
    lines = dict(line.split(":") for line in capsys.readouterr().out.replace(" ", "").split())
    assert lines == {
        "SDID": str(4 << 22 | 2 << 18 | 1 << 16 | 5),
        "SuperPodSize": "384",
        "SuperPodID": "3",
        "ServerIndex": "4",
    }
    assert npu_smi.main(["npu-smi", "info"]) == 0
    overview = capsys.readouterr().out
    assert overview.count("| Ascend910 ") == 0
    assert overview.count("Ascend910") == 16
    assert "No running processes found in NPU 7" in overview
    assert npu_smi.main(["npu-smi", "info", "-t", "health", "-i", "8"]) == 1
    assert npu_smi.main(["npu-smi", "info", "--frobnicate"]) == 1


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["-link", "-g"], "link status: UP"),
        (["-net_health", "-g"], "net health status: Success"),
        (["-ip", "-g"], "ipaddr:29.2.1.4"),
        (["-vnic", "-g"], "vnic ipaddr:192.130.1.4"),
        (["-hccs_ping", "-g", "address", "192.130.2.1"], "0.00% packets loss"),
        (["-ping", "-g", "address", "10.0.0.1"], "100.00% packet loss"),
    ],
)
def test_hccn_tool_answers(
    host_tool: HostTool, capsys: pytest.CaptureFixture[str], words: list[str], line: str
) -> None:
    host_tool("ascend")
    exit_code = hccn_tool.main(["hccn_tool", "-i", "3", *words])
    assert line in capsys.readouterr().out
    assert exit_code == (1 if line.startswith("100") else 0)


def test_hccn_tool_refuses_what_it_does_not_know(host_tool: HostTool) -> None:
    host_tool("ascend")
    assert hccn_tool.main(["hccn_tool", "-i", "3", "-frobnicate", "-g"]) == 1
    assert hccn_tool.main(["hccn_tool", "-i", "16", "-link", "-g"]) == 1
    assert hccn_tool.main(["hccn_tool", "-link", "-g"]) == 1


@pytest.mark.parametrize(
    ("vendor", "paths"),
    [
        (
            "nvidia",
            ["dev/nvidia3", "dev/nvidia-caps-imex-channels/channel0", "dev/infiniband/uverbs0"],
        ),
        ("amd", ["dev/kfd", "dev/dri/renderD135"]),
        ("ascend", ["dev/davinci15", "dev/hisi_hdc", "etc/hccn.conf", "etc/ascend_install.info"]),
    ],
)
def test_the_drivers_files_are_there_and_stay_as_they_are(
    host_tool: HostTool, tmp_path: Path, vendor: str, paths: list[str]
) -> None:
    host_tool(vendor)
    root = tmp_path / "root"
    prepare_devices.main(["prepare_devices.py", str(root)])
    for path in paths:
        assert (root / path).is_file()
    (root / paths[-1]).write_text("changed")
    prepare_devices.main(["prepare_devices.py", str(root)])
    assert (root / paths[-1]).read_text() == "changed"


@pytest.mark.parametrize(
    ("words", "exit_code", "says"),
    [
        ("-b 8G -e 8G -g 8 -c 1 -n 10 -w 3", 0, "minBytes 8589934592 maxBytes 8589934592"),
        ("--minbytes=1K -e 2M -g 8", 0, "minBytes 1024 maxBytes 2097152"),
        ("-b 8G -e 8G -g 8 --frobnicate", 0, "invalid option '?'"),
        ("-b 8G -e 8G -g 9", 1, "Test NCCL failure"),
        ("-b 8G -g 8", 255, "invalid sizes"),
        ("-b x -e 8G -g 8", 255, "invalid sizes"),
    ],
)
def test_a_collective_takes_the_options_of_nccl_tests_and_no_others(
    words: str,
    exit_code: int,
    says: str,
    host_tool: HostTool,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The real one leaves with 0 behind its usage: only sums tell that it ran."""
    host_tool("amd")
    assert collective_test.main(["all_reduce_perf", *words.split()]) == exit_code
    told = capfd.readouterr()
    assert says in told.out + told.err
    assert ("Avg bus bandwidth" in told.out) == ("minBytes" in says)


@pytest.mark.parametrize(
    ("words", "exit_code"),
    [
        ("ethtool -S lo", 0),
        ("ethtool -S nic9", 96),
        ("mlnx_qos -i lo", 0),
        ("mlnx_qos -i nic9", 1),
        ("mlxlink -d mlx5_99 -c", 1),
        ("mlnx_qos -i lo --trust dscp", 1),
        ("ethtool", 1),
    ],
)
def test_cards_that_are_not_there_tell_nothing(
    words: str, exit_code: int, host_tool: HostTool, capsys: pytest.CaptureFixture[str]
) -> None:
    host_tool("amd")
    assert card_tools.main(words.split()) == exit_code
    assert (capsys.readouterr().out != "") == (exit_code == 0)


@pytest.mark.parametrize(
    ("words", "exit_code", "says"),
    [
        ("-s", 0, "Link 17: 53.125 GB/s"),
        ("-e -i 1", 0, "Link 17: CRC Errors: 0"),
        ("-s --frobnicate", 2, 'Option "--frobnicate" is not recognized.'),
        ("-s -e", 2, "Invalid nvlink option"),
        ("-s -i 9", 6, "No devices were found"),
        ("", 0, "Display NvLink information"),
    ],
)
def test_nvlinks_are_told_of_the_gpus_that_are_asked_for(
    words: str,
    exit_code: int,
    says: str,
    host_tool: HostTool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    host_tool("nvidia")
    assert nvidia_smi.main(["nvidia-smi", "nvlink", *words.split()]) == exit_code
    assert says in capsys.readouterr().out


def test_amd_smi_knows_no_device_that_is_not_there(
    host_tool: HostTool, capfd: pytest.CaptureFixture[str]
) -> None:
    host_tool("amd")
    assert amd_tools.main(["amd-smi", "list", "-g", "8"]) == 253
    assert capfd.readouterr().err == "Can not find a device: GPU '8' Error code: -3\n"
