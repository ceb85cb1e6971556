"""vllm-ascend's multi-node test configurations, read as its own runner would start them.

Source: vllm-project/vllm-ascend tests/e2e/nightly/multi_node/{internal_dp,external_dp}/scripts at commit 182b75e,
2026-08-22, and tests/e2e/nightly/multi_node/scripts at v0.18.0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from infra.inventory.book import documentation_hosts
from infra.plan.foreign.script import ScriptReader, scope_of
from infra.plan.foreign.shell import Shell
from infra.plan.foreign.shell_values import Value
from infra.plan.foreign.source import Launch, NotUnderstood, Recipe, Word
from infra.plan.foreign.yaml_pages import Node

MAX_NODES = 64
PROXY_PORT = "1999"
_INTERFACE = "eth0"
_INTERFACES = ("HCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "NIC_NAME")
_TEMPLATE = re.compile(r"\$\{([A-Za-z_]\w*)\}")
_VARIABLE = re.compile(r"(?<!\$)\$([A-Za-z_]\w*)")
_ROLES = {"prefiller": "prefill", "decoder": "decode"}
_PROXY = (
    "python3",
    "/vllm-workspace/vllm-ascend/examples/disaggregated_prefill_v1/load_balance_proxy_server_example.py",
)


def is_internal(root: Node) -> bool:
    """Whether it has a whole command per node."""
    return root.get("deployment").is_there and root.get("npu_per_node").is_there


def is_external(root: Node) -> bool:
    """Whether it has a template per node, expanded once per rank."""
    return root.get("templates").is_there and root.get("config").is_there


def read_internal(root: Node, settings: Mapping[str, str]) -> Recipe:
    """One `vllm serve` per node.

    Raises:
        TooMuchWorkError: a script in it does too much to be followed.
    """
    deployments = root.get("deployment").nodes()[:MAX_NODES]
    addresses = _addresses(root, len(deployments))
    roles = _internal_roles(root)
    launches: list[Launch] = []
    notes: list[NotUnderstood] = []
    for index, deployment in enumerate(deployments):
        key = f"node{index}"
        master = addresses["node0"]
        if roles.get(index) == "decode":
            master = addresses[f"node{min(i for i, role in roles.items() if role == 'decode')}"]
        # up to 0.18.0 the runner gave `env_common` to every node; since then it is an anchor that each node names
        env = {
            name: node.word()
            for part in (root.get("env_common"), deployment.get("envs"))
            for name, node in part.items()
        }
        env |= _network(addresses[key], master, deployment.line)
        reader = ScriptReader({})
        scope = scope_of(settings, root.page.work)
        scope.values.update({name: Value(word.raw) for name, word in env.items()})
        shell = Shell(scope, reader.handle)
        script = deployment.get("server_cmd").script()
        shell.follow(script.raw, script.line)
        notes += shell.not_understood
        launches += [
            Launch(words=found.words, env={**env, **found.env}, host=key, role=roles.get(index))
            for found in reader.launches
        ]
    if roles:
        line = root.get("disaggregated_prefill").line
        why = "the proxy's port is one that is free when it starts: the proxy is left out"
        notes.append(NotUnderstood(line, "disaggregated_prefill", why))
    return _recipe("vllm-ascend multi-node file", root, (launches, notes, addresses))


def read_external(root: Node) -> Recipe:
    """One `vllm serve` per rank, and the proxy.

    Raises:
        TooMuchWorkError: its ranks are too many to be followed.
    """
    configs = root.get("config").nodes()[:MAX_NODES]
    templates = root.get("templates").nodes()
    addresses = _addresses(root, len(configs))
    roles = {
        node.number(-1): _ROLES.get(group, group)
        for group, members in root.get("routing", "groups").items()
        for node in members.nodes()
    }
    launches: list[Launch] = []
    notes: list[NotUnderstood] = []
    for index, config in enumerate(configs):
        template = templates[index] if index < len(templates) else None
        if template is None:
            notes.append(NotUnderstood(config.line, f"config {index}", "it has no template"))
            continue
        for local in range(min(config.get("dp_size_local").number(1), 64)):
            template.spend()
            values = _rank_values(root, config, index, local) | _cluster(addresses, index)
            launches.append(_rank(root, template, values, (f"node{index}", roles.get(index))))
    if root.get("kv_pool").is_there:
        line = root.get("kv_pool").line
        notes.append(NotUnderstood(line, "kv_pool", "its service on node 0 is no engine"))
    if root.get("routing", "type").text() == "disaggregated_prefill" and launches:
        launches.append(_proxy(root.get("routing").line, launches, addresses))
    return _recipe(
        "vllm-ascend multi-node file, a process per rank", root, (launches, notes, addresses)
    )


_Found = tuple[list[Launch], list[NotUnderstood], dict[str, str]]


def _recipe(name: str, root: Node, found: _Found) -> Recipe:
    launches, notes, addresses = found
    for key in ("special_dependencies",):
        if root.get(key).is_there:
            why = "packages that are installed before the start"
            notes.append(NotUnderstood(root.get(key).line, key, why))
    return Recipe(
        format=name,
        launches=tuple(launches),
        not_understood=tuple(notes),
        is_whole=True,
        addresses=addresses,
        devices_per_host=root.get("npu_per_node").number() or None,
        name=root.get("test_name").text(),
    )


def _addresses(root: Node, count: int) -> dict[str, str]:
    """The cluster's addresses where the file has them, else documentation addresses."""
    written = [node.text() for node in root.get("cluster_hosts").nodes()]
    names = [f"node{index}" for index in range(count)]
    if len(written) == count:
        return dict(zip(names, written, strict=True))
    book = documentation_hosts(names)
    return {name: book.address(name, seen_from=name) for name in names}


def _internal_roles(root: Node) -> dict[int, str]:
    group = root.get("disaggregated_prefill")
    found = {node.number(-1): "prefill" for node in group.get("prefiller_host_index").nodes()}
    found |= {node.number(-1): "decode" for node in group.get("decoder_host_index").nodes()}
    return found


def _network(own: str, master: str, line: int) -> dict[str, Word]:
    """What the runner sets on every node."""
    values = {"HCCL_IF_IP": own, "LOCAL_IP": own, "MASTER_IP": master}
    values |= dict.fromkeys(_INTERFACES, _INTERFACE)
    return {name: Word(value, line) for name, value in values.items()}


def _rank_values(root: Node, config: Node, index: int, local: int) -> dict[str, str]:
    """The template variables of one rank (template.md)."""
    sizes = {name: config.get(f"{name}_size").number(1) for name in ("tp", "cp", "sp", "pp")}
    width = sizes["tp"] * sizes["cp"] * sizes["sp"] * sizes["pp"]
    start, first = config.get("port_start").number(), config.get("dp_rank_start").number()
    return {
        "MODEL": root.get("model").text(),
        "PORT_START": str(start),
        "PORT": str(start + local),
        "DP_SIZE": config.get("dp_size").text(),
        "DP_SIZE_LOCAL": config.get("dp_size_local").text(),
        "DP_RANK_START": str(first),
        "DP_RANK": str(first + local),
        "LOCAL_RANK": str(local),
        **{f"{name.upper()}_SIZE": str(size) for name, size in sizes.items()},
        "DP_ADDRESS": config.get("dp_address").text(),
        "DP_RPC_PORT": config.get("dp_rpc_port").text(),
        "VISIBLE_DEVICES": ",".join(map(str, range(local * width, min((local + 1) * width, 1024)))),
        "NODE_INDEX": str(index),
        "CONFIG_INDEX": str(index),
    }


def _cluster(addresses: Mapping[str, str], index: int) -> dict[str, str]:
    found = {f"NODE_{i}_IP": address for i, address in enumerate(addresses.values())}
    return found | {
        "LOCAL_IP": addresses[f"node{index}"],
        "MASTER_IP": addresses["node0"],
        "LWS_WORKER_INDEX": str(index),
    }


def _rank(
    root: Node, template: Node, values: Mapping[str, str], place: tuple[str, str | None]
) -> Launch:
    """One rank's process: `vllm serve MODEL` and the template's words."""
    values = {**values, "DP_ADDRESS": _filled(values["DP_ADDRESS"], values)}
    line = template.get("server_cmd_template").line
    env = {
        name: Word(_filled(node.text(), values), node.line)
        for name, node in template.get("envs").items()
    }
    env |= _network(values["LOCAL_IP"], values["MASTER_IP"], template.line)
    told = {**{name: word.text for name, word in env.items()}, **values}
    words = [
        Word("vllm", line),
        Word("serve", line),
        Word(root.get("model").text(), root.get("model").line),
    ]
    for node in template.get("server_cmd_template").nodes():
        text = _filled(node.text(), values)
        filled = _VARIABLE.sub(lambda match: told.get(match[1], match[0]), text)
        left = tuple(match[0] for match in _VARIABLE.finditer(filled)) if filled[:1] != "{" else ()
        words.append(Word(filled, node.line, left))
    return Launch(words=tuple(words), env=env, host=place[0], role=place[1])


def _filled(text: str, values: Mapping[str, str]) -> str:
    return _TEMPLATE.sub(lambda match: values.get(match[1], match[0]), text)


def _proxy(line: int, launches: list[Launch], addresses: Mapping[str, str]) -> Launch:
    """The proxy on node 0: every rank of both roles."""
    words = [*_PROXY, "--host", addresses["node0"], "--port", PROXY_PORT]
    for role, prefix in (("prefill", "prefiller"), ("decode", "decoder")):
        members = [launch for launch in launches if launch.role == role]
        words += [f"--{prefix}-hosts", *(addresses[str(m.host)] for m in members)]
        words += [f"--{prefix}-ports", *(_port(m) for m in members)]
    return Launch(
        words=tuple(Word(word, line) for word in words), env={}, host="node0", role="router"
    )


def _port(launch: Launch) -> str:
    texts = [word.text for word in launch.words]
    return texts[texts.index("--port") + 1] if "--port" in texts[:-1] else "8000"
