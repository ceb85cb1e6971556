"""`fab estimate`: the table, the document, layouts side by side, the picture."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infra.tasks.picture_file import write_picture
from tests.cli.commands import FAB, run

DOCUMENT = {"schema_version", "stack", "ok", "checkpoint_gb", "ready_minutes", "usd_per_hour"}
ROLE = {"role", "weights_gib_per_device", "kv_gib_per_device", "kv_tokens", "max_context"} | {
    "processes",
    "devices",
}


def estimate(*words: str) -> tuple[int, dict[str, object]]:
    done = run(FAB, "estimate", *words, "--json")
    return done.returncode, json.loads(done.stdout)


def test_the_document_has_what_the_design_names() -> None:
    code, document = estimate("--stack", "gb200-2p1d")
    assert code == 0
    assert set(document) >= DOCUMENT
    roles = document["roles"]
    assert isinstance(roles, list)
    assert [role["role"] for role in roles] == ["prefill", "decode"]
    assert set(roles[0]) >= ROLE
    assert document["checkpoint_gb"] == 591.0
    assert document["usd_per_hour"] == pytest.approx(380.952)


def test_layouts_stand_side_by_side() -> None:
    words = "roles.prefill.data_parallel=8 roles.prefill.max_model_len=262144"
    done = run(
        FAB, "estimate", "--stack", "gb200-2p1d", "--compare", words, "--compare", "gb200-tp4"
    )
    assert done.returncode == 0
    head, *rows = done.stdout.splitlines()
    assert head.split() == ["gb200-2p1d", "roles.prefill.data_parallel=8", "gb200-tp4"]
    weights = next(
        row.split() for row in rows if row.split()[:1] == ["weights"] and "GB" not in row
    )
    assert weights == ["weights", "156.6", "90.1", "-"]
    assert done.stderr.splitlines()[-1] == "Next: fab check --stack gb200-2p1d"


def test_a_layout_that_does_not_fit_is_an_answer_that_says_so() -> None:
    fields = ("--set", "roles.prefill.max_model_len=262144")
    done = run(FAB, "estimate", "--stack", "gb200-2p1d", *fields)
    assert done.returncode == 0
    assert "262,144 (does not fit)" in done.stdout
    assert "prefill cannot hold one request of the length it admits." in done.stdout


def test_requests_are_counted_at_the_length_asked_for() -> None:
    code, document = estimate("--stack", "h200-tp8", "--length", "8192")
    roles = document["roles"]
    assert code == 0
    assert isinstance(roles, list)
    assert roles[0]["request_tokens"] == 8192
    assert roles[0]["concurrent_requests"] == roles[0]["kv_tokens"] // 8192


def test_a_block_is_told_as_reserved_used_and_idle() -> None:
    until = "2099-12-15T11:30:00Z"
    code, document = estimate("--stack", "gb200-2p1d", "--until", until)
    assert code == 0
    purchase = document["purchase"]
    assert isinstance(purchase, dict)
    assert purchase["units"] == [{"sold_as": "u-p6e-gb200x36", "count": 1, "machines": 9}]
    assert (purchase["reserved"], purchase["used"], purchase["idle"]) == (9, 6, 3)
    assert purchase["usd_per_day"] == pytest.approx(24 * 380.952, abs=0.01)
    assert purchase["idle_usd_per_day"] == pytest.approx(24 * 380.952 / 3, abs=0.01)
    assert purchase["saved_by_destroying_compute_usd_per_hour"] == 0.0
    assert purchase["price_list"] == "2026-09-19"
    assert purchase["end"]["stop_by"] == "2099-12-15T10:30+00:00"
    assert purchase["end"]["usd_left"] == pytest.approx(
        purchase["end"]["hours_left"] * 380.952, rel=1e-4
    )
    fuller = [each["set"] for each in purchase["fuller"]]
    assert ["roles.prefill.replicas=5", "roles.decode.replicas=1"] in fuller


def test_a_fuller_layout_can_be_typed_as_it_is_printed() -> None:
    done = run(FAB, "estimate", "--stack", "gb200-tp4")
    assert done.returncode == 0
    assert "9, 8 of them idle" in done.stdout
    assert "Destroying compute alone saves nothing" in done.stdout
    assert "--until TIME" in done.stdout
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("With 9 of 9")]
    again = run(FAB, "estimate", "--stack", "gb200-tp4", *line.partition(": ")[2].split())
    assert again.returncode == 0, again.stderr
    assert "hosts, devices" in again.stdout
    assert "9, 36" in again.stdout
    assert "idle" not in again.stdout.partition("machines bought")[2].splitlines()[0]


def test_machines_on_demand_and_hosts_of_ones_own_have_no_reservation() -> None:
    done = run(FAB, "estimate", "--stack", "h200-tp8")
    assert "Destroying compute alone saves 63.30 USD per hour" in done.stdout
    code, document = estimate("--stack", "a3-2p1d")
    assert (code, document["purchase"]) == (0, None)


def test_a_cluster_on_eks_is_counted_beside_its_block() -> None:
    code, document = estimate("--stack", "eks-b200-tp8")
    assert code == 0
    purchase = document["purchase"]
    assert isinstance(purchase, dict)
    cluster = {each["what"]: each["usd_per_hour"] for each in purchase["cluster"]}
    assert cluster["2 system nodes"] == pytest.approx(2 * 0.4032)
    beside = sum(cluster.values())  # the control plane's follows the day
    assert purchase["usd_per_hour"] == pytest.approx(98.84 + beside, abs=0.001)
    assert purchase["saved_by_destroying_compute_usd_per_hour"] == pytest.approx(beside, abs=0.001)
    assert purchase["reserved"] == purchase["used"] == 1
    done = run(FAB, "estimate", "--stack", "eks-b200-tp8", "--compare", "b200-sglang-tp8")
    (row,) = [line for line in done.stdout.splitlines() if "of these the cluster" in line]
    assert row.split()[-2:] == [f"{24 * beside:,.2f}", "-"]
    assert f"saves {beside:,.2f} USD per hour, the cluster's" in done.stdout
    assert "2 × m7i.2xlarge on-demand at 0.4032" in done.stdout


TWO_OF_A_BLOCK = (
    "capacity.kind=capacity-block",
    "roles.unified.replicas=2",
    "router.name=vllm-router",
)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--reserved", "3"), "come from no reservation"),
        (
            (*(word for each in TWO_OF_A_BLOCK for word in ("--set", each)), "--reserved", "1"),
            "do not hold the stack: it takes 2",
        ),
        (("--set", "capacity.kind=capacity-block", "--reserved", "0.5"), "not a whole number"),
        (("--until", "Christmas"), "is no moment"),
        (("--until", "2026-12-15T11:30:00"), "has no time zone"),
        (("--until", "9999-12-31T23:59:59-12:00"), "is no moment"),
        (("--until", "0001-01-01T00:00:00Z"), "is the end of no reservation"),
        (("--compare", "no-such-stack"), "no-such-stack"),
        (("--compare", "gb200-tp4 a3-2p1d"), "neither a stack nor FIELD=VALUE"),
        (("--compare", "'port=80"), "No closing quotation."),
        (("--compare", "rolls.decode=1"), "rolls"),
        (("--length", "0"), "not a number above zero"),
        (("--picture", "memory.gif"), "A picture is an .svg or a .png file."),
    ],
)
def test_what_cannot_be_estimated_leaves_with_two(words: tuple[str, ...], what: str) -> None:
    done = run(FAB, "estimate", "--stack", "h200-tp8", *words, "--json")
    assert done.returncode == 2
    assert any(
        what in error["what"] + error["where"] for error in json.loads(done.stdout)["errors"]
    )
    assert "Traceback" not in done.stderr


def test_the_picture_is_what_its_name_says(tmp_path: Path) -> None:
    for name, magic in (("memory.svg", b"<svg "), ("memory.png", b"\x89PNG")):
        done = run(FAB, "estimate", "--stack", "gb200-2p1d", "--picture", str(tmp_path / name))
        assert done.returncode == 0, done.stderr
        assert (tmp_path / name).read_bytes().startswith(magic)


def test_a_png_without_its_program_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Exception, match=r"Install librsvg2-bin, or name an \.svg file"):
        write_picture(tmp_path / "memory.png", "<svg/>")
