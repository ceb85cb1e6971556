"""The three routers' command lines, written and read.

Sources: vllm-router 0.1.17 and sglang-router 0.3.2 (run 2026-11-20), vllm-ascend's
examples/disaggregated_prefill_v1/load_balance_proxy_server_example.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import urlsplit

from infra.catalog.flags import FlagCatalogue
from infra.catalog.router_release import RouterRelease
from infra.engines.command_line import as_int, canonical_flag, options_meant, parse_flags
from infra.engines.reading import Bind, Dial, Reading
from infra.engines.recognition import PROXY_LISTS, is_ascend_proxy, program_length
from infra.spec.bounded import is_whole_number
from infra.spec.stack import KvTransfer, RouterName

PROMETHEUS_PORT = 29000
LOOPBACK = "127.0.0.1"
# Routers start when every engine has proven itself; this only covers a slow first health check.
STARTUP_TIMEOUT_S = 600
# The wheels end every answer after a time in total, and tell nobody: HTTP 200, no error counted, a stream cut in its
# middle (1800 s by default; vllm-router 0.1.17 and sglang-router 0.3.2, run 2026-11-25; both take any 64-bit number).
# So the limit is that of an answer which nothing healthy exceeds: a rank that needs more than a second for a token
# serves nobody, and an hour holds the longest queue and prompt. What hangs is the watcher's to end.
SLOWEST_TOKEN_S = 1
QUEUE_AND_PROMPT_S = 3600
# How often the proxy looks after endpoints that leave or come; its own 10 s delay each by as much.
MEMBERS_LOOK_S = "1"
# A replica that restarts is left out, and taken back, within seconds. The wheels' defaults (every 60 s, three failures,
# a breaker that stays open for 60 s) send requests to it for minutes, and still avoid it when the next one restarts.
# A refused connection counts at once, an engine that is busy has five seconds to answer, and one answer brings it back.
_HEALTH_WORDS = (
    "--health-check-interval-secs", "1",
    "--health-check-timeout-secs", "5",
    "--health-failure-threshold", "1",
    "--health-success-threshold", "1",
    "--cb-timeout-duration-secs", "5",
)  # fmt: skip


class Endpoint(NamedTuple):
    """An engine endpoint that the router spreads requests over.

    `bootstrap_port` is that of a prefill process that serves one, else None.
    """

    role: str
    address: str
    port: int
    bootstrap_port: int | None

    @property
    def url(self) -> str:
        """`http://address:port`."""
        return f"http://{self.address}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterContext:
    """What a router's command line is made of.

    Args:
        address: that of its own host.
        prometheus_port: where it serves its metrics, on `metrics_address` alone.
        longest_answer_s: seconds after which no healthy answer is still under way.
        is_behind_edge: whether only a front on its own host dials it.
    """

    release: RouterRelease
    address: str
    port: int
    metrics_address: str
    prometheus_port: int
    longest_answer_s: int
    policy: str | None
    kv_transfer: KvTransfer | None
    endpoints: tuple[Endpoint, ...]
    is_behind_edge: bool = False

    def of_role(self, role: str) -> tuple[Endpoint, ...]:
        """Endpoints of one role, in plan order."""
        return tuple(endpoint for endpoint in self.endpoints if endpoint.role == role)


def write_router(name: RouterName, context: RouterContext) -> tuple[str, ...]:
    """The router's argument vector."""
    return _WRITERS[name](context)


def longest_answer_s(num_tokens: int) -> int:
    """Seconds that an answer of so many tokens takes at the most, its wait and its prompt included."""
    return QUEUE_AND_PROMPT_S + num_tokens * SLOWEST_TOKEN_S


def has_prometheus_port(name: RouterName) -> bool:
    """Whether the router serves its metrics on a port of their own."""
    return name != "ascend-proxy"


def read_router(argv: Sequence[str], catalogue: FlagCatalogue | None) -> Reading:
    """Ports and endpoints of a router's argument vector; which router it is follows from the program."""
    return _read_router(tuple(argv), catalogue)


@lru_cache(maxsize=16)
def _read_router(argv: tuple[str, ...], catalogue: FlagCatalogue | None) -> Reading:
    """A plan is read when it is compiled and again when it is judged: the second time is free."""
    if catalogue is None:
        return _read_proxy(argv)
    start = next((i for i, word in enumerate(argv) if i > 0 and word.startswith("--")), len(argv))
    prefill, decode, rest = _split_lists(argv[start:], catalogue)
    parsed = parse_flags(rest, catalogue)
    dials = [_dial(url) for url in _as_words(parsed.values.get("worker-urls"))]
    for words in prefill:
        dials.append(_dial(words[0]))
        if len(words) > 1 and is_whole_number(words[1]):
            dials.append(Dial(name="bootstrap", address=dials[-1].address, port=int(words[1])))
    dials.extend(_dial(words[0]) for words in decode)
    port = as_int(parsed.values.get("port"), 30000)
    prometheus = as_int(parsed.values.get("prometheus-port"), PROMETHEUS_PORT)
    flags = {
        **parsed.values,
        "prefill": tuple(w[0] for w in prefill),
        "decode": tuple(w[0] for w in decode),
    }
    return Reading(
        flags=flags,
        unknown=parsed.rejected,
        http_port=port,
        binds=(Bind(name="http", port=port), Bind(name="prometheus", port=prometheus)),
        dials=tuple(dials),
    )


def _write_vllm_router(context: RouterContext) -> tuple[str, ...]:
    pd_words = ("--vllm-pd-disaggregation", "--kv-connector", str(context.kv_transfer))
    return _write_wheel_router(context, pd_words)


def _write_sglang_router(context: RouterContext) -> tuple[str, ...]:
    return _write_wheel_router(context, ("--pd-disaggregation",))


def _write_wheel_router(context: RouterContext, pd_words: tuple[str, ...]) -> tuple[str, ...]:
    """Both wheels list endpoints alike; `pd_words` say that they are prefill and decode."""
    listen = LOOPBACK if context.is_behind_edge else "0.0.0.0"  # noqa: S104
    words = [*context.release.program, "--host", listen, "--port", str(context.port)]
    if context.kv_transfer is None:
        words += ["--worker-urls", *(endpoint.url for endpoint in context.endpoints)]
        return (*words, *_shared_words(context))
    words += pd_words
    for endpoint in context.of_role("prefill"):
        words += ["--prefill", endpoint.url]
        if endpoint.bootstrap_port is not None:
            words.append(str(endpoint.bootstrap_port))
    for endpoint in context.of_role("decode"):
        words += ["--decode", endpoint.url]
    return (*words, *_shared_words(context))


def _shared_words(context: RouterContext) -> tuple[str, ...]:
    policy = ("--policy", context.policy) if context.policy else ()
    return (
        *policy,
        "--prometheus-host",
        context.metrics_address,
        "--prometheus-port",
        str(context.prometheus_port),
        "--request-timeout-secs",
        str(context.longest_answer_s),
        "--worker-startup-timeout-secs",
        str(STARTUP_TIMEOUT_S),
        *_HEALTH_WORDS,
    )


def _write_ascend_proxy(context: RouterContext) -> tuple[str, ...]:
    listen = LOOPBACK if context.is_behind_edge else context.address
    words = [*context.release.program, "--host", listen, "--port", str(context.port)]
    for role, prefix in (("prefill", "prefiller"), ("decode", "decoder")):
        endpoints = context.of_role(role)
        words += [f"--{prefix}-hosts", *(endpoint.address for endpoint in endpoints)]
        words += [f"--{prefix}-ports", *(str(endpoint.port) for endpoint in endpoints)]
    return (*words, "--waiting-retry-interval", MEMBERS_LOOK_S)


_WRITERS: Mapping[RouterName, Callable[[RouterContext], tuple[str, ...]]] = {
    "vllm-router": _write_vllm_router,
    "sglang-router": _write_sglang_router,
    "ascend-proxy": _write_ascend_proxy,
}

_ASCEND_LISTS = ("--prefiller-hosts", "--prefiller-ports", "--decoder-hosts", "--decoder-ports")
_PROXY_LISTS = (*_ASCEND_LISTS, "--prefill", "--decode")
# Spellings of other proxies.
_PROXY_ALIASES: Mapping[str, str] = {
    alias: f"--{prefix}-{kind}s" if kind in alias else f"--{role}"
    for role, prefix in (("prefill", "prefiller"), ("decode", "decoder"))
    for alias in PROXY_LISTS[role]
    for kind in (next((k for k in ("host", "port") if k in alias), "url"),)
}
_PROXY_VALUES = (
    "--port", "--host", "--max-retries", "--retry-delay", "--max-waiting-retries",
    "--waiting-retry-interval", "--workers", "--log-level",
)  # fmt: skip


def _read_proxy(argv: Sequence[str]) -> Reading:
    """A proxy's argparse: lists of hosts and ports of equal length, or of URLs; of one of them all flags are known."""
    is_known = len(argv) > 1 and is_ascend_proxy(argv[1])
    lists, values, unknown = _proxy_words(argv[program_length(argv) :], is_known=is_known)
    listed: dict[str, list[Dial]] = {}
    for role, prefix in (("prefill", "prefiller"), ("decode", "decoder")):
        hosts, ports = lists[f"--{prefix}-hosts"], lists[f"--{prefix}-ports"]
        urls = [word for word in lists[f"--{role}"] if not is_whole_number(word)]
        if len(hosts) != len(ports):
            if is_known:
                said = f"{len(hosts)} {prefix} hosts but {len(ports)} ports"
                unknown.append((f"--{prefix}-ports", said))
            elif not hosts:  # each of these proxies looks on its own host
                hosts = ["localhost"] * len(ports)
        listed[role] = [_dial(url) for url in urls] + [
            Dial(name="http", address=h, port=as_int(p, 0))
            for h, p in zip(hosts, ports, strict=False)
        ]
    port = as_int(values.get("--port"), 8000)
    flags: dict[str, object] = {name.lstrip("-"): tuple(words) for name, words in lists.items()}
    flags.update({name.lstrip("-"): value for name, value in values.items()})
    for role, dials in listed.items():
        flags[role] = tuple(f"http://{d.address}:{d.port}" for d in dials)
    return Reading(
        flags=flags,
        unknown=tuple(unknown),
        http_port=port,
        binds=(Bind(name="http", port=port),),
        dials=(*listed["prefill"], *listed["decode"]),
    )


def _proxy_words(
    words: Sequence[str], *, is_known: bool
) -> tuple[dict[str, list[str]], dict[str, str], list[tuple[str, str]]]:
    """Lists and single values by flag, and (word, reason) of what the parser of the known proxy refuses."""
    lists: dict[str, list[str]] = {name: [] for name in _PROXY_LISTS}
    values: dict[str, str] = {}
    unknown: list[tuple[str, str]] = []
    current = ""
    for given in words:
        head, equals, word = given.partition("=") if given.startswith("--") else ("", "=", given)
        if head and not is_known:
            current = _PROXY_ALIASES.get(head.replace("_", "-"), head)
        elif head:
            meant = options_meant(head, (*_ASCEND_LISTS, *_PROXY_VALUES))
            current = meant[0] if len(meant) == 1 else ""
            if not meant:
                unknown.append((head, f"unrecognized arguments: {head}"))
            elif not current:
                unknown.append((head, f"ambiguous option: {head} could match {', '.join(meant)}"))
        if equals and current in lists:
            lists[current] += word.split(",")
        elif equals:
            values[current] = word
    return lists, values, unknown


def _split_lists(
    words: Sequence[str], catalogue: FlagCatalogue
) -> tuple[list[list[str]], list[list[str]], list[str]]:
    """The repeated `--prefill URL [PORT]` and `--decode URL`, and the other words."""
    found: dict[str, list[list[str]]] = {"prefill": [], "decode": []}
    rest: list[str] = []
    target = rest
    for word in words:
        fact = canonical_flag(word, catalogue)
        if fact is not None and fact.name in found:
            _, equals, inline = word.partition("=")
            found[fact.name].append([inline] if equals else [])
            target = found[fact.name][-1]
        elif word.startswith("--"):
            target = rest
            rest.append(word)
        else:
            target.append(word)
    return [w for w in found["prefill"] if w], [w for w in found["decode"] if w], rest


def _as_words(value: object) -> tuple[str, ...]:
    return tuple(str(word) for word in value) if isinstance(value, tuple) else ()


def _dial(url: str) -> Dial:
    address, _, port = url.removeprefix("http://").rpartition(":")
    if is_whole_number(port) and not set(address) & set(
        "/[@"
    ):  # nearly all; urlsplit is slow for thousands
        return Dial(name="http", address=address, port=int(port))
    try:
        parts = urlsplit(url)
        return Dial(name="http", address=parts.hostname or "", port=parts.port or 80)
    except ValueError:  # no number behind the colon: nobody listens on port 0
        return Dial(name="http", address=address, port=0)
