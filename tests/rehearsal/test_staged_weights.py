"""An imported plan names its weights where simulated hosts hold them, whatever its author's hosts call them."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.plan.foreign.assumed import Told
from infra.plan.process import Plan
from infra.rehearsal.checkpoints import checkpoints_of
from infra.rehearsal.staged_weights import with_staged_weights
from tests.plan.foreign.importing import CATALOG, imported

REVISION = CATALOG.checkpoint("kimi-k2.5-int4").revision
STAGED = f"/models/kimi-k2.5-int4/{REVISION}"
VLLM = Told(engine="vllm:0.22.1", accelerator="h200", checkpoint="kimi-k2.5-int4")
SGLANG = Told(engine="sglang:0.5.9", accelerator="h200", checkpoint="kimi-k2.5-int4")


def plan_of(folder: Path, text: str, told: Told = VLLM) -> Plan:
    return imported(folder, text, told=told).assembled.plan


@pytest.mark.parametrize(
    ("text", "told", "name"),
    [
        ("vllm serve moonshotai/Kimi-K2.5 -tp 8\n", VLLM, "moonshotai/Kimi-K2.5"),
        ("vllm serve /data/kimi -tp 8\n", VLLM, "/data/kimi"),
        ("vllm serve --model=/models/Kimi-K2.5 -tp 8\n", VLLM, "/models/Kimi-K2.5"),
        ("vllm serve /data/k -tp 8 --served-model-name kimi\n", VLLM, "kimi"),
        ("vllm serve m/K -tp 8 --served-model-name m/K --tokenizer m/K\n", VLLM, "m/K"),
        ("python3 -m sglang.launch_server --model-path /d/k --tp 8\n", SGLANG, "/d/k"),
    ],
)
def test_a_command_names_the_staged_folder_and_keeps_its_name_for_clients(
    text: str, told: Told, name: str, tmp_path: Path
) -> None:
    plan, moved = with_staged_weights(plan_of(tmp_path, text, told), CATALOG)
    assert list(moved.values()) == [STAGED]
    (process,) = plan.processes
    assert [each.path for each in checkpoints_of(plan, CATALOG)] == [STAGED]
    argv = process.argv
    assert argv[argv.index("--served-model-name") + 1] == name
    assert argv.count("--served-model-name") == 1
    assert "--tokenizer" not in argv or argv[argv.index("--tokenizer") + 1] == STAGED


def test_a_draft_is_staged_too(tmp_path: Path) -> None:
    config = (
        '{"method":"eagle3","model":"lightseekorg/kimi-k2.5-eagle3","num_speculative_tokens":3}'
    )
    text = f"vllm serve moonshotai/Kimi-K2.5 -tp 8 --speculative-config '{config}'\n"
    plan, moved = with_staged_weights(plan_of(tmp_path, text), CATALOG)
    folders = [each.path for each in checkpoints_of(plan, CATALOG)]
    assert sorted(moved.values()) == folders
    assert folders[0].startswith("/models/kimi-k2.5-eagle3/")


def test_what_showed_the_authors_weights_makes_way(tmp_path: Path) -> None:
    text = (
        "docker run --net=host -v /mnt/a:/data -v /mnt/b:/models -v /mnt/c:/cache"
        " vllm/vllm-openai:v0.22.1 --model /data/kimi -tp 8\n"
    )
    plan, _ = with_staged_weights(plan_of(tmp_path, text), CATALOG)
    assert [mount.target for mount in plan.processes[0].mounts] == ["/cache"]


def test_a_plan_that_names_staged_weights_is_as_it_was(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, f"vllm serve {STAGED} -tp 8\n")
    assert with_staged_weights(plan, CATALOG) == (plan, {})
