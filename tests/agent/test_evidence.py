"""The evidence of one host: what is in the archive, and that no secret is."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra.agent.processes import card_counters, evidence
from infra.agent.processes.card_counters import CardCounters
from infra.agent.processes.evidence import stream
from infra.agent.processes.masking import Mask
from tests.agent.stubborn_host import StubbornHost

FOLDER = "/etc/moe-infra/s"
UNIT = "moe-s-engine@0.service"
TOLD_S = 10.0
# Planted in every place that the archive draws from; joined here so that no scanner finds a key in this file.
IN_CREDENTIAL, IN_ENVIRONMENT = "sesame-" + "open-1234", "variable" + "-value-77"
HUB, BEARER, ARGUMENT = "hf_" + "zGk2Qv81Lm", "eyJ" + "hbGciOi.x9", "given-on-the" + "-line"
ALL = (IN_CREDENTIAL, IN_ENVIRONMENT, HUB, BEARER, ARGUMENT)


@pytest.fixture
def engine() -> Iterator[int]:
    """A process with a secret in its environment and one in its arguments."""
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)", "--api-key", ARGUMENT],
        env={"MY_API_KEY": IN_ENVIRONMENT, "HARMLESS": "yes", "HF_HOME": "/models"},
    )
    # Popen returns when exec has closed its pipe; the kernel tells the new environment a moment later
    until = time.monotonic() + TOLD_S
    while not Path(f"/proc/{child.pid}/environ").read_bytes() and time.monotonic() < until:
        time.sleep(0.01)
    yield child.pid
    child.kill()
    child.wait()


Hang = Callable[[Path], None]


@pytest.fixture
def laid_out(host: StubbornHost, stand_in: Callable[[str, str], None], engine: int) -> StubbornHost:
    """A host with one engine."""
    record = {"processes": [{"id": "a/0", "unit": UNIT, "role": "unified"}]}
    host.put(f"{FOLDER}/release.json", json.dumps(record))
    host.put(f"{FOLDER}/credentials/api_key", IN_CREDENTIAL + "\n", 0o600)
    host.put(f"{FOLDER}/engine-0/environment", f"LEFT_HERE_BY_HAND={IN_CREDENTIAL}\n")
    entry = f"__CURSOR=c\\n__REALTIME_TIMESTAMP=1\\nMESSAGE=%s\\n_SYSTEMD_UNIT={UNIT}\\n\\n"
    logged = f"Authorization: Bearer {BEARER}; token {HUB}; key {IN_CREDENTIAL}; {IN_ENVIRONMENT}"
    stand_in("journalctl", f"case $* in *export*) printf '{entry % logged}';; *) echo NVRM;; esac")
    shown = f"MainPID={engine}\\nControlGroup=/none\\n"
    stand_in("systemctl", f"case $1 in show) printf '{shown}';; *) echo {IN_CREDENTIAL};; esac")
    inspected = json.dumps([{"Config": {"Env": [f"HF_TOKEN={HUB}", f"X={IN_ENVIRONMENT}"]}}])
    stand_in("docker", f"case $2 in --format) exit 1;; esac; echo '{inspected}'")
    own = Path(f"/proc/{engine}")
    for name in ("status", "limits", "cmdline", "environ"):
        host.put(f"/proc/{engine}/{name}", (own / name).read_bytes())
    host.put(f"/proc/{engine}/cgroup", "0::/none\n")
    return host


@pytest.fixture
def archive(laid_out: StubbornHost) -> dict[str, bytes]:
    report, found = collect(laid_out)
    assert report["left_out"] == []
    return found


def collect(host: StubbornHost) -> tuple[dict[str, object], dict[str, bytes]]:
    """The report, and the archive's files."""
    chunks: list[bytes] = []
    report = stream({"record": f"{FOLDER}/release.json"}, host, chunks.append)
    with tarfile.open(fileobj=io.BytesIO(b"".join(chunks)), mode="r:gz") as packed:
        return report, {
            member.name: content.read()
            for member in packed
            if (content := packed.extractfile(member)) is not None
        }


def test_a_rank_has_its_unit_journal_container_and_processes(
    archive: dict[str, bytes], engine: int
) -> None:
    place = "ranks/a_0"
    assert archive[f"{place}/journal.txt"].startswith(b"1970-01-01T00:00:00.000001Z Authoriz")
    assert b"Max locked memory" in archive[f"{place}/{engine}/limits"]
    assert b"HARMLESS=yes" in archive[f"{place}/{engine}/environ"]
    assert {f"{place}/unit.txt", f"{place}/docker.json", "host/kernel.log"} <= set(archive)
    assert "host/files/engine-0/environment" in archive
    assert not any("credentials" in name for name in archive)
    assert "host/rdma-counters.txt" not in archive  # no card, no file


def test_what_rdma_cards_count_is_in_the_archive_twice_and_by_how_much_it_has_grown(
    host: StubbornHost,
) -> None:
    folder = "/sys/class/infiniband/mlx5_0/ports/1"
    host.put(f"{folder}/counters/port_rcv_data", "18446744073709551615\n")
    host.put(f"{folder}/hw_counters/out_of_sequence", "12\n")
    host.put(f"{folder}/hw_counters/lifespan", "10\n")
    host.put(f"{folder}/hw_counters/np_cnp_sent", "Invalid argument\n")
    cards = CardCounters(host, time.monotonic() + TOLD_S)
    host.put(f"{folder}/hw_counters/out_of_sequence", "15\n")
    head, *lines = cards.again().splitlines()
    assert head.split()[0] == "counter"
    assert lines == [
        "mlx5_0/ports/1/counters/port_rcv_data 18446744073709551615 18446744073709551615 +0",
        "mlx5_0/ports/1/hw_counters/out_of_sequence 12 15 +3",
    ]


def test_a_card_that_does_not_answer_is_named_and_hides_no_other(
    host: StubbornHost, hang: Hang, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one the firmware is dead already, of the other it dies between the looks."""
    monkeypatch.setattr(card_counters, "LOOK_S", 0.3)
    folders = [f"/sys/class/infiniband/mlx5_{card}/ports/1" for card in range(3)]
    for folder in folders:
        host.put(f"{folder}/counters/port_rcv_data", "5\n")
        host.put(f"{folder}/hw_counters/np_cnp_sent", "7\n")
    hang(Path(host.path(f"{folders[0]}/hw_counters/np_cnp_sent")))
    begun = time.monotonic()
    cards = CardCounters(host, begun + TOLD_S)
    host.put(f"{folders[2]}/hw_counters/np_cnp_sent", "9\n")
    hang(Path(host.path(f"{folders[1]}/counters/port_rcv_data")))
    first, second, _, *lines = cards.again().splitlines()
    assert time.monotonic() - begun < TOLD_S / 2
    assert first == "mlx5_0: no answer within 0.3 s"
    assert second == "mlx5_1: no answer within 0.3 s"
    assert lines == [
        "mlx5_0/ports/1/counters/port_rcv_data 5 - -",
        "mlx5_1/ports/1/counters/port_rcv_data 5 - -",
        "mlx5_1/ports/1/hw_counters/np_cnp_sent 7 - -",
        "mlx5_2/ports/1/counters/port_rcv_data 5 5 +0",
        "mlx5_2/ports/1/hw_counters/np_cnp_sent 7 9 +2",
    ]


def test_what_nccl_says_of_the_ranks_job_is_there(archive: dict[str, bytes]) -> None:
    assert archive["host/nccl-ras-28028.txt"].startswith(b"localhost:28028: ")  # nobody listens


def test_the_network_of_each_ascend_device_is_asked_for_in_turn(
    host: StubbornHost, stand_in: Callable[[str, str], None]
) -> None:
    host.put(f"{FOLDER}/release.json", json.dumps({"processes": []}))
    for name in ("davinci0", "davinci10", "davinci2", "davinci_manager"):
        host.put(f"/dev/{name}", "")
    stand_in("hccn_tool", 'echo "$*"')
    _, found = collect(host)
    asked = [found[name] for name in found if name.startswith("host/tools/hccn-")]
    wanted = [f"-i {n} -{topic} -g\n" for n in (0, 2, 10) for topic in ("stat", "link_stat")]
    assert [text.decode() for text in asked] == wanted
    assert "host/nccl-ras-28028.txt" not in found  # no process, nobody to ask


def test_the_bundle_holds_the_counters_of_a_host_with_cards(host: StubbornHost) -> None:
    host.put(f"{FOLDER}/release.json", json.dumps({"processes": []}))
    host.put("/sys/class/infiniband/mlx5_0/ports/1/hw_counters/np_cnp_sent", "7\n")
    chunks: list[bytes] = []
    begun = time.monotonic()
    stream({"record": f"{FOLDER}/release.json"}, host, chunks.append)
    assert time.monotonic() - begun >= 1  # the looks are a second apart
    with tarfile.open(fileobj=io.BytesIO(b"".join(chunks)), mode="r:gz") as packed:
        content = packed.extractfile("host/rdma-counters.txt")
        assert content is not None
        assert b"mlx5_0/ports/1/hw_counters/np_cnp_sent 7 7 +0\n" in content.read()


def test_no_planted_secret_leaves_the_host(archive: dict[str, bytes], engine: int) -> None:
    for name, content in archive.items():
        assert not [secret for secret in ALL if secret.encode() in content], name
    assert b"MY_API_KEY=***" in archive[f"ranks/a_0/{engine}/environ"]
    assert b"HF_TOKEN=***" in archive["ranks/a_0/docker.json"]


def test_what_does_not_answer_is_named_and_the_rest_is_there(
    laid_out: StubbornHost, engine: int, hang: Hang, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process whose memory a wedged driver has locked, and a disk of which one file hangs."""
    monkeypatch.setattr(evidence, "FILE_S", 0.2)
    wedged = 7 if engine != 7 else 8
    laid_out.put(f"/proc/{wedged}/cgroup", "0::/none\n")
    laid_out.put(f"/proc/{wedged}/wchan", "nv_wait")
    for name in ("environ", "cmdline"):
        hang(Path(laid_out.path(f"/proc/{wedged}/{name}")))
    hang(Path(laid_out.path(f"{FOLDER}/engine-0/launch")))
    begun = time.monotonic()
    report, found = collect(laid_out)
    assert time.monotonic() - begun < TOLD_S
    silent = f"ranks/a_0/{wedged}/environ"
    assert report["left_out"] == [silent, "host/files/engine-0/launch"]
    assert found[silent] == b"no answer within 2 s"
    assert found["host/files/engine-0/launch"] == b"no answer within 0.2 s"
    assert found[f"ranks/a_0/{wedged}/wchan"] == b"nv_wait"
    assert b"HARMLESS=yes" in found[f"ranks/a_0/{engine}/environ"]
    assert {"host/kernel.log", "host/files/engine-0/environment"} <= set(found)


def test_time_that_is_over_is_said(
    host: StubbornHost, stand_in: Callable[[str, str], None]
) -> None:
    host.put(f"{FOLDER}/release.json", json.dumps({"processes": []}))
    chunks: list[bytes] = []
    report = stream({"record": f"{FOLDER}/release.json", "collect_s": 1e-9}, host, chunks.append)
    assert "host/kernel.log" in str(report["left_out"])
    assert chunks


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("--max-num-batched-tokens 8192", "--max-num-batched-tokens 8192"),
        ("max_num_batched_tokens=8192", "max_num_batched_tokens=8192"),
        ("serve --api-key abcdef x", "serve --api-key *** x"),
        ("hf_token: abcdef", "hf_token: ***"),
        ('{"api_key": "abc def", "n": 1}', '{"api_key": ***, "n": 1}'),
        ("https://user:pass@host/x", "https://user:***@host/x"),
        ("AWS_SECRET_ACCESS_KEY=abc/def+1", "AWS_SECRET_ACCESS_KEY=***"),
        ("", ""),
    ],
)
def test_what_looks_like_a_secret_is_masked(text: str, masked: str) -> None:
    assert Mask([]).text(text.encode()).decode() == masked


def test_short_values_are_no_secrets() -> None:
    assert Mask([b"a", b""]).text(b"banana") == b"banana"
