"""The real `fab` as a subprocess: what it lists, what it refuses, how it leaves."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from infra.spec.load import PROJECT
from infra.spec.plain_yaml import parse_yaml
from infra.tasks.table import GROUPS
from tests.fab_process import FAB, run_fab

DESIGNED_ORDER = (
    "stacks", "check", "plan", "render", "estimate", "facts", "preflight", "tune-hosts", "stage-weights", "up", "down",
    "restart", "status", "logs", "diff", "replace-host", "verify", "bundle", "import", "engines",
    "inventory", "rehearse",
)  # fmt: skip
UNREACHABLE = (
    "all: {hosts: {unified-0: {ansible_host: 127.0.0.1, ansible_port: 9, ansible_user: nobody}}}\n"
)


def fab(*words: str) -> subprocess.CompletedProcess[str]:
    """One call, as from a script: no terminal, nothing on standard input."""
    return run_fab(*words, environment={**os.environ, "TERM": "xterm"}, timeout_s=60)


def a_stack(folder: Path, text: str, name: str = "mine") -> str:
    path = folder / f"{name}.yaml"
    path.write_text(text)
    return str(path)


def test_tasks_are_listed_in_groups_in_the_designs_order() -> None:
    done = fab("--list")
    assert done.returncode == 0
    listed = [line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ")]
    assert tuple(listed) == DESIGNED_ORDER
    titles = [line for line in done.stdout.splitlines() if line in {title for title, _ in GROUPS}]
    assert titles == [title for title, _ in GROUPS]


@pytest.mark.parametrize(
    "entry", [entry for _, entries in GROUPS for entry in entries], ids=lambda e: e.name
)
def test_every_task_has_a_module_that_can_run(entry: object) -> None:
    module = getattr(entry, "module", "")
    tree = ast.parse((PROJECT / "infra" / "tasks" / f"{module}.py").read_text(encoding="utf-8"))
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert [argument.arg for argument in functions["run"].args.args] == ["options", "output"]
    assert (ast.get_docstring(tree) or "").startswith(f"`fab {getattr(entry, 'name', '')}")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("upp", "--stack", "x"), "There is no task upp. Did you mean up?"),
        (("plan", "--stak", "x"), "plan has no option --stak. Did you mean --stack"),
        (("plan", "--stack"), "--stack needs a value."),
        (("plan",), "No stack was named."),
        (("plan", "h200-tp8"), "A stack is named with --stack h200-tp8."),
        (("plan", "--stack", "h200-tp8", "--stack", "a3-2p1d"), "--stack is given twice to plan."),
        (("plan", "--stack", "h200-tp8", "--set"), "--set needs a value."),
        (("plan", "--set", "--stack", "h200-tp8"), "--set needs a value."),
        (("-F", "tree", "--list"), "Use flat, nested, json."),
        (("--list", "hosts"), "--list takes no name"),
        (("-R", "up", "--stack", "h200-tp8"), "`fab diff` and `fab tune-hosts --check`"),
        (("--prompt-for-passphrase", "up", "--stack", "h200-tp8"), "ssh-add"),
        (("-H", "somewhere", "plan", "--stack", "h200-tp8"), "--inventory"),
        (("-H", "a", "tune-hosts", "--stack", "h200-tp8"), "--stack chooses a stack's"),
        (("-H", "a,b,a", "tune-hosts"), "a is named twice"),
        (("-H", "a:b:", "tune-hosts"), "is no host"),
        (("-H", "a", "-S", "/nowhere", "tune-hosts"), "There is no ssh_config /nowhere"),
        (("-S", "/etc/hosts", "status", "--stack", "h200-tp8"), "-S says how the hosts of -H are"),
        (("status", "--stack", "h200-tp8", "-i", "key"), "ansible_ssh_private_key_file"),
        (
            ("check", "--stack", "h200-tp8", "-i", "hosts.yml"),
            "An inventory is named with --inventory FILE",
        ),
        (("check", "--stack", "h200-tp8", "-j"), "Did you mean --json?"),
        (("-t", "5", "-H", "a", "tune-hosts"), "ConnectTimeout in an ssh_config"),
        (("-T", "5", "status", "--stack", "h200-tp8"), "--command-timeout is Fabric's"),
        (("tune-hosts", "--stack", "h200-tp8", "--identity", "key"), "--identity is for hosts"),
        (("-H", "a", "tune-hosts", "--profile", "x86"), "x86-amd"),
        (("tune-hosts", "--stack", "h200-tp8", "--profile", "x86-amd"), "--set tuning=NAME"),
        (("-H", "a", "tune-hosts", "--allow", "everything"), "Use drain, reboot, running"),
        (("logs", "--stack", "a3-2p1d", "--follow", "--json"), "--follow never ends"),
        (("up", "--stack", "gb200-2p1d"), "There is no inventory"),
        (("status", "--stack", "gb200-2p1d"), "There is no inventory"),
        (("status", "--stack", "k8s-gb200-2p1d"), "`pulumi up --stack k8s-gb200-2p1d`"),
        (("logs", "--file", "stacks/k8s-a3-2p1d.yaml"), "`pulumi up --stack k8s-a3-2p1d`"),
        (("render", "--stack", "h200-tp8"), "--to"),
        (("plan", "--stack", "x" * 300), "There is no stack xxx"),
        (
            ("plan", "--stack", "h200-tp8", "--set", f"checkpoint={'x' * 300}"),
            "The catalogue has no",
        ),
        (("plan", "--stack", "h200-tp8", "--set", "platform=[]"), "[] is not one of aws-ec2"),
        (("inventory", "--stack", "h200-tp8", "--ssh-args", "-o 'x"), "Close the quotation."),
        (("restart", "--stack", "h200-tp8", "--replica", "²"), "They count from 0"),
        (("restart", "--stack", "h200-tp8", "--replica", "9" * 5000), "They count from 0"),
        (("estimate", "--stack", "gb200-2p1d", "--reserved", "1e18"), "more than any reservation"),
    ],
)
def test_a_wrong_command_line_leaves_with_two_and_says_what_to_type(
    words: tuple[str, ...], said: str
) -> None:
    done = fab(*words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [("plan", "--stak", "x"), ("up", "--stack"), ("replace-host", "a"), ("-H", "a", "plan")],
    ids=["option", "value", "place", "hosts"],
)
def test_a_wrong_command_line_is_told_in_three_parts(words: tuple[str, ...]) -> None:
    document = json.loads(fab(*words, "--json").stdout)
    (error,) = document["errors"]
    assert error["where"] == "command line"
    assert error["what"].endswith(".")
    assert error["fix"].endswith(".")


@pytest.mark.parametrize("content", [b"\xff\xfe", b"=\n"], ids=["binary", "no-config"])
def test_an_ssh_config_that_cannot_be_read_leaves_with_two(content: bytes, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_bytes(content)
    done = fab("-H", "192.0.2.1", "-S", str(config), "tune-hosts")
    assert done.returncode == 2
    assert f"The ssh_config {config} cannot be read" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["my stack", ".hidden", "a$(id)", "-x", "y" * 65])
def test_check_refuses_a_name_that_hosts_could_not_take_over(name: str, tmp_path: Path) -> None:
    done = fab("check", "--file", a_stack(tmp_path, "extends: h200-tp8\n", name), "--json")
    (problem,) = json.loads(done.stdout)["problems"]
    assert (done.returncode, problem["rule"]) == (2, "stack-name")


def test_a_stack_is_named_after_its_file_whatever_the_file_ends_in(tmp_path: Path) -> None:
    file = tmp_path / "mine.stack"
    file.write_text("extends: h200-tp8\n")
    assert json.loads(fab("check", "--file", str(file), "--json").stdout)["stack"] == "mine"


def test_a_folder_is_no_stack_file(tmp_path: Path) -> None:
    (problem,) = json.loads(fab("check", "--file", str(tmp_path), "--json").stdout)["problems"]
    assert problem["what"] == f"{tmp_path} is a folder."


@pytest.mark.parametrize(
    ("text", "image"),
    [
        ("extends: h200-tp8\n", None),  # the catalogue knows what its tag means
        ("extends: a3-2p1d\n", "quay.io/ascend/vllm-ascend:v0.22.1rc1-a3"),
        ("extends: a3-2p1d\nengine: {image: 'x.example.com/a:1@sha256:" + "1" * 64 + "'}\n", None),
        ("extends: vllm-native\n", None),
    ],
)
def test_an_image_that_runs_by_its_tag_alone_is_named(
    tmp_path: Path, text: str, image: str | None
) -> None:
    done = fab("check", "--file", a_stack(tmp_path, text), "--json")
    assert json.loads(done.stdout)["image_by_tag"] == image
    assert ("runs by its tag alone" in done.stderr) is (image is not None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("extends: gb200-2p1d\nenigne: {name: vllm, version: 0.22.1}\n", "enigne.*engine"),
        ("extends: gb200-2p1d\nport: eighty\n", "port"),
        ("extends: mine\n", "circle"),
        ("extends: gb200-2p1d\nroles: {decode: {flags: {tensor-parallel-size: 2}}}\n", "tensor_parallel"),
        ("extends: h200-tp8\nroles: {unified: {tensor_parallel: 3}}\n", "3.*64"),
        ("extends: gb200-2p1d\nrouter: null\n", "router"),
        ("extends: h200-tp8\ncheckpoint: kimi-k2.5-w4a8\n", "kimi-k2.5-w4a8"),
        ("extends: h200-tp8\nweights: {source: 's3://'}\n", "weights.source.*nothing of it follows.*BUCKET"),
        ("a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
            f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(8)
        ), "alias|anchor|large|nest"),
    ],
    ids=["misspelt", "type", "cycle", "owned", "heads", "no-router", "vendor", "source", "bomb"],
)  # fmt: skip
def test_a_wrong_stack_leaves_with_two_and_says_where(text: str, said: str, tmp_path: Path) -> None:
    done = fab("check", "--file", a_stack(tmp_path, text), "--json")
    assert done.returncode == 2, done.stderr
    document = json.loads(done.stdout)
    assert document["ok"] is False
    assert document["problems"]
    joined = " ".join(f"{p['field']} {p['what']} {p['fix']}" for p in document["problems"])
    assert re.search(said, joined, re.DOTALL), joined
    assert "Traceback" not in done.stderr


def test_all_problems_of_a_file_are_said_at_once(tmp_path: Path) -> None:
    text = "extends: gb200-2p1d\nport: eighty\nweights: {pth: /x}\n"
    document = json.loads(fab("check", "--file", a_stack(tmp_path, text), "--json").stdout)
    assert {problem["line"] for problem in document["problems"]} >= {2, 3}


def test_an_unknown_stack_names_the_nearest() -> None:
    done = fab("plan", "--stack", "gb200-2p1", "--json")
    assert done.returncode == 2
    document = json.loads(done.stdout)
    assert (document["ok"], document["exit_code"]) == (False, 2)
    assert "gb200-2p1d" in document["errors"][0]["fix"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("all: {children: {prefill: {hosts: {a: {ansible_host: 192.0.2.1}}}}}\n", "needs 2 hosts"),
        (
            "all: {hosts: {a: {ansible_host: 192.0.2.1}, b: {ansible_host: 192.0.2.1}}}\n",
            "same address",
        ),
        ("all: {hosts: {a: {ansible_host: 192.0.2.1, moe: {addrezz: x}}}}\n", "addrezz"),
    ],
    ids=["too-few", "twice", "unknown-key"],
)
def test_a_wrong_inventory_leaves_with_two(text: str, said: str, tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(text)
    done = fab("up", "--stack", "gb200-2p1d", "--inventory", str(inventory))
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_weights_come_from_a_host_of_the_inventory_or_check_says_so(tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.yml"
    inventory.write_text("all: {hosts: {unified-0: {ansible_host: 192.0.2.1}}}\n")
    words = ["check", "--stack", "h200-tp8", "--inventory", str(inventory), "--json"]
    wrong = fab(*words, "--set", "weights.source=host:old-0")
    (problem,) = json.loads(wrong.stdout)["problems"]
    assert (wrong.returncode, problem["rule"]) == (2, "weights-source")
    assert problem["what"] == f"The inventory {inventory} has no host old-0; it has unified-0."
    assert fab(*words, "--set", "weights.source=host:unified-0").returncode == 0


def test_a_host_that_does_not_answer_leaves_with_four(tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(UNREACHABLE)
    done = fab("status", "--stack", "h200-tp8", "--inventory", str(inventory), "--json")
    assert done.returncode == 4
    document = json.loads(done.stdout)
    assert document["ok"] is False
    assert [row["state"] for row in document["processes"]] == ["unknown"]
    (error,) = document["errors"]
    assert error["where"] == "unified-0"
    assert error["what"] == "127.0.0.1 port 9 refuses connections."
    assert error["fix"] == "Start sshd there, or correct the port."


def test_nothing_is_claimed_of_a_host_that_does_not_answer(tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(UNREACHABLE)
    words = ("status", "--stack", "h200-tp8", "--inventory", str(inventory))
    (row,) = json.loads(fab(*words, "--json").stdout)["processes"]
    assert [row[key] for key in ("since", "epoch", "restarts", "devices")] == [None] * 4
    told = next(line for line in fab(*words).stdout.splitlines() if line.startswith("unified-0"))
    assert told.split() == ["unified-0", "unified-0", *["unknown"] * 6]


def test_where_no_evidence_came_nothing_is_said_of_failures(tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(UNREACHABLE)
    words = ("--stack", "h200-tp8", "--inventory", str(inventory), "--to", str(tmp_path / "b.tgz"))
    done = fab("bundle", *words)
    assert done.returncode == 4
    assert "No host gave its evidence, so nothing is known of a failure." in done.stdout
    assert "No line" not in done.stdout


def early(module: str, how: str) -> subprocess.CompletedProcess[str]:
    """`fab stacks`, of which an interrupt meets the start where it looks for a module."""
    return subprocess.run(
        [sys.executable, "-c", EARLY, module, how],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_an_interrupt_leaves_with_130(tmp_path: Path) -> None:
    with socket.socket() as listener:  # it greets nobody
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        inventory = tmp_path / "hosts.yml"
        inventory.write_text(
            f"all: {{hosts: {{unified-0: {{ansible_host: 127.0.0.1, ansible_port: {port}}}}}}}\n"
        )
        process = subprocess.Popen(
            [FAB, "status", "--stack", "h200-tp8", "--inventory", str(inventory)],
            cwd=PROJECT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        listener.settimeout(20)
        connection, _ = listener.accept()
        with connection:
            time.sleep(0.3)  # until the main thread waits for the others
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=10)
    assert process.returncode == 130
    assert "Traceback" not in said


EARLY = """
import os, signal, sys
from infra.tasks.start import main

_, where, how = sys.argv

class Pressing:
    def find_spec(self, name, *_):
        if name == where:
            os.kill(os.getpid(), signal.SIGINT)

if how == "ignored":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.meta_path.insert(0, Pressing())
sys.argv = ["fab", "stacks"]
main()
"""


@pytest.mark.parametrize("module", ["infra.tasks.command_line", "infra.errors", "invoke.program"])
def test_an_interrupt_while_modules_load_leaves_with_130_and_no_traceback(module: str) -> None:
    done = early(module, "default")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "Interrupted.\n")
    assert early(module, "ignored").returncode == 0  # as `nohup` and `&` have it


IMPATIENT = """
import os, signal, sys
from infra.tasks.program import table_program
from invoke.program import Program

class Pressed:
    def write(self, text):
        os.kill(os.getpid(), signal.SIGINT)
        return os.write(2, text.encode())
    def flush(self):
        pass

def interrupt(self):
    raise KeyboardInterrupt

Program.execute = interrupt
sys.stderr = Pressed()
table_program().run(["fab", "stacks"])
"""


def test_a_second_interrupt_while_the_first_one_leaves_changes_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPATIENT], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, "Interrupted.\n")


def test_without_a_terminal_there_is_no_colour_and_the_next_command_is_last() -> None:
    done = fab("plan", "--stack", "h200-tp8")
    assert done.returncode == 0
    assert "\033" not in done.stdout + done.stderr
    assert done.stderr.splitlines()[-1].startswith("Next: fab check")


def test_the_next_command_of_render_chooses_the_same_stack(tmp_path: Path) -> None:
    file = a_stack(tmp_path, "extends: h200-tp8\n")
    done = fab("render", "--file", file, "--set", "port=9000", "--to", str(tmp_path / "out"))
    assert done.stderr.splitlines()[-1] == f"Next: fab up --file {file} --set port=9000"


def test_rendered_files_are_those_of_the_hosts(tmp_path: Path) -> None:
    done = fab("render", "--stack", "h200-tp8", "--to", str(tmp_path / "out"), "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    host = tmp_path / "out" / "unified-0"
    assert (host / "etc/moe-infra/h200-tp8/engine-0/launch").stat().st_mode & 0o111
    state = json.loads((host / "host-state.json").read_text())
    assert state["stack"] == "h200-tp8"
    assert sorted(
        str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*") if p.is_file()
    ) == sorted(document["files"])
    assert (tmp_path / "out" / "inventory.yml").is_file()


@pytest.mark.parametrize("task", ["up", "inventory"])
@pytest.mark.parametrize("platform", ["aws-eks", "existing-kubernetes"])
def test_what_kubernetes_would_start_is_not_given_units(task: str, platform: str) -> None:
    done = fab(task, "--stack", "h200-tp8", "--set", f"platform={platform}")
    assert done.returncode == 2
    assert f"On {platform} Kubernetes starts and watches the processes" in done.stderr


def test_a_plan_in_pods_is_not_rendered_without_its_stack(tmp_path: Path) -> None:
    planned = fab("plan", "--stack", "k8s-a3-2p1d", "--json")
    path = tmp_path / "plan.json"
    path.write_text(planned.stdout, encoding="utf-8")
    done = fab("render", "--plan", str(path), "--to", str(tmp_path / "out"))
    assert done.returncode == 2
    assert "On existing-kubernetes Kubernetes starts and watches the processes" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("stack", ["k8s-gb200-2p1d", "eks-b200-tp8"])
def test_of_a_stack_in_pods_the_manifests_are_rendered(stack: str, tmp_path: Path) -> None:
    done = fab("render", "--stack", stack, "--to", str(tmp_path), "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.yaml"))
    assert document["files"] == found
    first, *rest = [parse_yaml((tmp_path / name).read_text()) for name in found]
    assert (first["kind"], first["metadata"]["name"]) == ("Namespace", stack)
    assert {each["metadata"].get("namespace") for each in rest} == {stack}
    assert {"LeaderWorkerSet", "ConfigMap", "DaemonSet"} <= {each["kind"] for each in rest}


def test_what_nobody_has_configured_of_a_cluster_is_told(tmp_path: Path) -> None:
    done = fab("render", "--stack", "k8s-gb200-2p1d", "--to", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert "network_resource is not configured; rdma/hca=8 stands for it." in done.stderr
    assert done.stderr.splitlines()[-1] == "Next: pulumi preview --stack k8s-gb200-2p1d"
    secret = fab(
        "render", "--stack", "k8s-gb200-2p1d", "--set", "secrets.api_key.env=KEY",
        "--to", str(tmp_path / "other"),
    )  # fmt: skip
    assert "Secret k8s-gb200-2p1d-secrets (api_key) is not among them" in secret.stderr


def test_files_of_another_rendering_are_told(tmp_path: Path) -> None:
    for port in ("8000", "9000"):
        words = ("--set", f"port={port}", "--to", str(tmp_path))
        done = fab("render", "--stack", "k8s-gb200-2p1d", *words)
        assert ("files of another rendering: " in done.stderr) is (port == "9000")
    assert "configmap-k8s-gb200-2p1d-router-" in done.stderr


def test_what_is_not_made_in_pods_is_not_rendered(tmp_path: Path) -> None:
    wanted = ("--set", "ingress=internal-load-balancer")
    done = fab("render", "--stack", "k8s-gb200-2p1d", *wanted, "--to", str(tmp_path / "out"))
    assert done.returncode == 2
    assert "A cluster has its own way in" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_leaves_with_two(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = fab("render", "--stack", "h200-tp8", "--to", str(tmp_path / "file" / "x"))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_check_tells_too_few_hosts_in_its_own_document(tmp_path: Path) -> None:
    path = tmp_path / "few.yml"
    path.write_text("prefill: {hosts: {p0: , p1: }}\ndecode: {hosts: {d0: }}\n")
    done = fab("check", "--stack", "gb200-2p1d", "--inventory", str(path), "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["stack"], document["ok"]) == (2, "gb200-2p1d", False)
    (problem,) = document["problems"]
    assert (problem["file"], problem["field"]) == (str(path), "decode")
    assert "needs 4 hosts here" in problem["what"]


def test_check_refuses_the_inventory_of_a_stack_with_other_roles(tmp_path: Path) -> None:
    path = tmp_path / "of others.yml"
    path.write_text("prefill: {hosts: {p0: }}\ndecode: {hosts: {d0: }}\n")
    done = fab("check", "--stack", "h200-tp8", "--inventory", str(path), "--json")
    (problem,) = json.loads(done.stdout)["problems"]
    assert done.returncode == 2
    assert (
        problem["what"]
        == "The inventory has hosts for decode and prefill; the stack's role is unified."
    )
    path.write_bytes(b"a: \xff")
    unreadable = fab("check", "--stack", "h200-tp8", "--inventory", str(path), "--json")
    (problem,) = json.loads(unreadable.stdout)["problems"]
    assert problem["what"] == "The inventory cannot be read: byte 4 is no UTF-8 text."


def test_a_file_with_a_space_in_its_path_is_told_whole(tmp_path: Path) -> None:
    path = tmp_path / "my hosts.yml"
    path.write_text("unified: {hosts: {h0: }}\n")
    facts = tmp_path / "my hosts.facts.yml"
    facts.write_text("garbage")
    done = fab("check", "--stack", "h200-tp8", "--inventory", str(path), "--json")
    (problem,) = json.loads(done.stdout)["problems"]
    assert (problem["file"], problem["field"]) == (str(facts), "")


def test_check_tells_an_unknown_accelerator_of_a_plan_in_its_own_document(tmp_path: Path) -> None:
    plan = json.loads(fab("plan", "--stack", "h200-tp8", "--json").stdout)
    plan["hosts"][0]["accelerator"] = "h300"
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan))
    done = fab("check", "--plan", str(path), "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["stack"]) == (2, "h200-tp8")
    assert "no accelerator h300" in document["problems"][0]["what"]


def test_a_picture_that_cannot_be_written_leaves_one_document(tmp_path: Path) -> None:
    picture = str(tmp_path / "none" / "x.svg")
    done = fab("plan", "--stack", "h200-tp8", "--json", "--picture", picture)
    assert done.returncode == 2
    assert json.loads(done.stdout)["errors"][0]["where"] == f"--picture {picture}"


def test_check_names_the_same_stack_again_and_says_where_addresses_come_from(
    tmp_path: Path,
) -> None:
    file = a_stack(tmp_path, "extends: h200-tp8\n")
    done = fab("check", "--file", file, "--set", "port=9000")
    assert done.stderr.splitlines() == [
        "There is no inventory: addresses are documentation addresses. Who may dial them is not judged.",
        f"Next: fab plan --file {file} --set port=9000",
    ]


def test_a_plan_tells_who_is_let_in(tmp_path: Path) -> None:
    words = ("--stack", "gb200-2p1d", "--set", "firewall=plan", "--set", "clients=[203.0.113.0/24]")
    told = fab("plan", *words, "--firewall", "prefill-0")
    assert told.returncode == 0, told.stderr
    assert "prefill-0 (192.0.2.1)\nports" in told.stdout
    assert "203.0.113.0/24  router http" in told.stdout
    assert "table inet moe-gb200-2p1d {" in told.stdout
    assert "Not filtered: RDMA" in told.stdout
    document = json.loads(fab("plan", *words, "--firewall", "all", "--json").stdout)
    assert len(document["hosts"]) == 6
    assert document["hosts"]["decode-0"]["rules"].startswith(
        "table inet moe-gb200-2p1d\ndelete table"
    )
    unknown = fab("plan", *words, "--firewall", "prefil-0")
    assert (unknown.returncode, "Did you mean prefill-0" in unknown.stderr) == (2, True)
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(
        "all: {children: {unified: {hosts: {node-a7: {ansible_host: 192.0.2.9}}}}}\n"
    )
    own = ("--stack", "h200-tp8", "--set", "firewall=plan", "--inventory", str(inventory))
    for name in ("node-a7", "unified-0"):
        shown = fab("plan", *own, "--firewall", name)
        assert shown.stdout.startswith("unified-0 (node-a7) (192.0.2.9)\n"), shown.stderr
    unknown = fab("plan", *own, "--firewall", "node-b7")
    assert "it has unified-0 (node-a7)" in unknown.stderr
    left = fab("plan", "--stack", "gb200-2p1d", "--firewall", "all")
    assert left.returncode == 2
    assert "gb200-2p1d leaves its hosts as open as they are" in left.stderr
    done = fab("render", *words, "--to", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    rules = tmp_path / "out" / "prefill-0" / "var/lib/moe-infra/firewall/gb200-2p1d.nft"
    assert rules.read_text() in told.stdout


def test_a_rule_is_explained_by_its_id() -> None:
    done = fab("check", "--explain", "kv-role", "--json")
    assert done.returncode == 0
    document = json.loads(done.stdout)
    assert (document["rule"], document["severity"]) == ("kv-role", "error")
    assert "decode consumes" in document["holds"]
    assert "vllm" in document["source"]
    unknown = fab("check", "--explain", "kv-rol")
    assert unknown.returncode == 2
    assert "Did you mean kv-role" in unknown.stderr


@pytest.mark.parametrize(
    "words", [("--help", "status"), ("--list",), ("plan", "--stack", "a3-2p1d")]
)
def test_a_reader_that_goes_away_gets_no_traceback(words: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [FAB, *words], cwd=PROJECT, stdout=writing, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writing)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize(("option", "keeps"), [((), True), (("-B",), False)])
def test_what_was_compiled_for_a_command_is_kept_unless_the_interpreter_was_told_not_to(
    option: tuple[str, ...], *, keeps: bool
) -> None:
    start = "from infra.tasks.program import table_program as made; made().parse_core(['fab', '--list'])"
    program = f"import sys; {start}; print(not sys.dont_write_bytecode)"
    done = subprocess.run(
        [sys.executable, *option, "-c", program],
        cwd=PROJECT,
        env={
            name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{keeps}\n"


def test_help_shows_how_a_task_is_typed() -> None:
    lines = fab("--help", "replace-host").stdout.splitlines()
    assert fab("replace-host", "--help").stdout.splitlines() == lines
    assert lines[0] == "Usage: fab replace-host OLD NEW [options]"
    assert lines[4].split(maxsplit=1) == ["OLD", "the host whose name stays"]
    assert any(line.startswith("  --inventory PATH ") for line in lines)


def test_a_secret_that_is_not_there_ends_up_before_a_host_is_asked(tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.yaml"
    inventory.write_text(UNREACHABLE)
    file = a_stack(tmp_path, "extends: h200-tp8\nsecrets: {api_key: {file: key}}\n")
    words = ("up", "--file", file, "--inventory", str(inventory))
    done = fab(*words)
    assert done.returncode == 3
    assert (
        f"secrets.api_key: The file {tmp_path / 'key'} cannot be read: No such file" in done.stderr
    )
    (tmp_path / "key").write_text("sesame")
    (tmp_path / "key").chmod(0o644)
    done = fab(*words)
    assert done.returncode == 4  # now it is the host that is not reached
    assert f"Type `chmod 600 {tmp_path / 'key'}`." in done.stderr
