"""Rules about environment variables, libraries and images around an engine."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from itertools import product

from infra.catalog.packages import VariableReader
from infra.catalog.schema import Architecture
from infra.checks.apart import has_member_apart
from infra.checks.view import Finding, PlanView
from infra.engines.network_names import INTERFACE_SUFFIX
from infra.plan.process import Process
from infra.spec.bounded import is_whole_number

# Where Debian and the images built on it keep libraries, and how images are tagged.
ARCHITECTURE_WORDS: tuple[tuple[str, Architecture], ...] = (
    ("x86_64", "x86_64"),
    ("amd64", "x86_64"),
    ("aarch64", "aarch64"),
    ("arm64", "aarch64"),
)
LOOPBACK = "lo"
# Whatever the connector: an engine's core and every worker call enable_envs_cache(), which reads each variable that
# vLLM knows, and these with int() (v1/engine/core.py, v1/executor/multiproc_executor.py, envs.py@0.17.0 to 0.33.0).
PORT_VARIABLES = ("VLLM_NIXL_SIDE_CHANNEL_PORT", "VLLM_MOONCAKE_BOOTSTRAP_PORT")
JUDGED_ELSEWHERE = (*PORT_VARIABLES, "VLLM_PORT")
# By family: what the engine's variables begin with, and what it says of one that it does not know.
ENGINE_PREFIXES = {
    "vllm": ("VLLM_", "the engine only warns of it"),
    "sglang": ("SGLANG_", "the engine says nothing of it"),
}
LIBRARY_VARIABLES = ("LD_PRELOAD", "LD_LIBRARY_PATH")
# gloo transport/tcp/device.cc takes the text as a name; vllm-ascend hands TP_ and HCCL_ to Gloo and HCCL.
PLAIN_NAMES = ("GLOO_", "TP_")


def variables_read(view: PlanView) -> Iterator[Finding]:
    """Every VLLM_ or SGLANG_ variable is one that the engine's release reads: others do nothing."""
    known = view.environment.names
    prefix, remark = ENGINE_PREFIXES[view.family]
    if not known:
        return
    for process in view.variants:
        for name in process.env:
            if name.startswith(prefix) and name not in known:
                what = f"{view.plan.engine.name} {view.plan.engine.version} does not read {name}."
                fix = f"Remove it: {remark}, and nothing follows."
                field = f"roles.{process.role}.env.{name}"
                yield Finding(field=field, what=what, fix=fix, process=process.id)


def internal_port_number(view: PlanView) -> Iterator[Finding]:
    """VLLM_PORT is a number, and not the HTTP port."""
    for process in view.engines:
        value = process.env.get("VLLM_PORT")
        if value is None:
            continue
        http = view.readings[process.id].http_port
        if not is_whole_number(value):
            what = f"VLLM_PORT is {value!r}: a Kubernetes service called vllm injects such a URI."
            fix = "Rename the service, or set enableServiceLinks: false."
        elif http is not None and int(value) == http:
            what, fix = f"VLLM_PORT is the HTTP port {http}.", "Leave it out."
        else:
            continue
        field = f"roles.{process.role}.env.VLLM_PORT"
        yield Finding(field=field, what=what, fix=fix, process=process.id)


def port_variables_numbers(view: PlanView) -> Iterator[Finding]:
    """Variables that vLLM reads as the port of a connector hold a number, whichever connector there is."""
    for process in view.engines:
        for name in PORT_VARIABLES:
            value = process.env.get(name)
            if value is not None and not is_whole_number(value):
                what = f"{name} is {value!r}, and no number: the engine reads it, used or not."
                field = f"roles.{process.role}.env.{name}"
                yield Finding(field=field, what=what, fix="Leave it out.", process=process.id)


def variables_readable(view: PlanView) -> Iterator[Finding]:
    """What vLLM reads as a number or one of several words is one: every core reads all variables, used or not."""
    release = f"{view.release.engine} {view.release.version}"
    for process, name, reader in _unreadable(view):
        if name in JUDGED_ELSEWHERE:
            continue
        value = process.env[name]
        what = (
            f"{name} is {value!r}, and {release} reads a {_number_word(reader)} there."
            if reader.number
            else f"{name} is {value!r}, which {release} does not know."
        )
        fix = "Write 1 or 0." if reader.number and reader.is_switch else _readable(reader)
        field = f"roles.{process.role}.env.{name}"
        yield Finding(field=field, what=what, fix=fix, process=process.id)


def values_counted(view: PlanView) -> Iterator[Finding]:
    """A variable that SGLang reads as a switch or a number is one: with any other value its default stands."""
    defaults = view.catalog.package(view.release.flags_catalogue).variables
    for process, name, reader in _unreadable(view):
        value = process.env[name]
        what = (
            f"{name} is {value!r}, which SGLang cannot read: its default {defaults[name]} stands."
        )
        field = f"roles.{process.role}.env.{name}"
        yield Finding(field=field, what=what, fix=_readable(reader), process=process.id)


def _unreadable(view: PlanView) -> Iterator[tuple[Process, str, VariableReader]]:
    """Variables with values that the release cannot read; what a shell fills in is not judged."""
    readers = view.catalog.package(view.release.flags_catalogue).variable_readers
    for process in view.variants:
        for name, value in process.env.items():
            reader = readers.get(name)
            if reader is not None and "$" not in value and not reader.takes(value):
                yield process, name, reader


def _readable(reader: VariableReader) -> str:
    """What to write in place of a value that cannot be read."""
    if reader.number:
        return f"Write a {_number_word(reader)}."
    return f"Write one of {', '.join(reader.choices)}."


def _number_word(reader: VariableReader) -> str:
    return "whole number" if reader.number == "int" else "number"


def interfaces_named(view: PlanView) -> Iterator[Finding]:
    """Variables that name an interface hold its name; NCCL alone knows `^` and `=` before it."""
    for process in view.variants:
        for name, value in process.env.items():
            if not name.endswith(INTERFACE_SUFFIX) or not value:
                continue
            if _is_address(value):
                what = f"{name} is {value}: an address, and no interface."
            elif value.lstrip("=").split(",") == [LOOPBACK] and has_member_apart(view, process):
                what = f"{name} is {value}: loopback, and others of {process.group} run on other hosts."
            elif value[0] in "^=" and name.startswith(PLAIN_NAMES):
                what = f"{name} is {value}: {value[0]} is NCCL's alone, others look for an interface of that name."
            else:
                continue
            fix = "Name the interface that carries the host's address, ens5 for example; `fab facts` finds it."
            field = f"roles.{process.role}.env.{name}"
            yield Finding(field=field, what=what, fix=fix, process=process.id)


def libraries_for_architecture(view: PlanView) -> Iterator[Finding]:
    """Libraries that are preloaded lie where the host's architecture keeps them."""
    for process in view.variants:
        own = view.accelerator(process).architecture
        for name, variables in product(LIBRARY_VARIABLES, (process.env, process.env_prepend)):
            other = _architecture_in(variables.get(name, ""))
            if other is not None and other != own:
                host = f"{process.host} ({view.accelerator(process).id})"
                what = f"{name} names a library for {other}; {host} is {own}."
                field = f"roles.{process.role}.env.{name}"
                fix = f"Use the path of {own}."
                yield Finding(field=field, what=what, fix=fix, process=process.id)


def image_for_architecture(view: PlanView) -> Iterator[Finding]:
    """An image whose tag names an architecture names that of the hosts."""
    tag = view.plan.engine.image.rpartition(":")[2]
    other = _architecture_in(tag)
    if other is None or view.plan.runtime == "native":
        return
    for host in view.plan.hosts:
        own = view.accelerators[host.name].architecture
        if own != other:
            what = f"The image {view.plan.engine.image} is for {other}; {host.accelerator} hosts are {own}."
            yield Finding(field="engine.image", what=what, fix=f"Use an image for {own}.")
            return


def _architecture_in(text: str) -> Architecture | None:
    """The one architecture that a text names; None when it names none or both."""
    named = {architecture for word, architecture in ARCHITECTURE_WORDS if word in text}
    return named.pop() if len(named) == 1 else None


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.lstrip("="))
    except ValueError:
        return False
    return True
