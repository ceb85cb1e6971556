"""`docker run` and `podman run`: from the command line to a running simulated engine."""

from __future__ import annotations

import os

from . import images
from .container_plan import check_settings, plan_launch
from .container_process import (
    RunningContainer,
    await_end,
    flush_streams,
    forward_signals,
    start_process,
)
from .container_records import (
    add_record,
    process_start,
    remove_record,
    timestamp,
    write_record,
)
from .container_request import ContainerRequest, read_request
from .documents import format_document, parse_document
from .failures import Refusal, run_failure
from .host_state import read_host

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from typing import Any

    from .container_records import Record
    from .flag_values import GpuRequest
else:
    import _signal  # the C module beneath `signal`, which would import `enum`

EXEC_FORMAT_EXIT_CODE = 255


def run_container(program: str, arguments: list[str]) -> int:
    """Do what `docker run` or `podman run` does and return its exit code.

    Args:
        program: `docker` or `podman`.
        arguments: the words after `run`.

    Raises:
        CommandFailure: with the real text and exit code.
    """
    try:
        request = read_request(program, arguments)
        host = read_host()
        image = _choose_image(request, host)
        check_settings(request, host)
        record = _create(request, image)
    except Refusal as refusal:
        raise run_failure(program, refusal) from None
    if _is_foreign(image, host):
        return _fail_foreign(record, request, image)
    try:
        if request.flags.has("detach"):
            return _run_detached(request, host, image, record)
        container = _start(request, host, image, record)
    except Refusal as refusal:
        _end(record, 127 if "not_found" in refusal.situation else 128)
        raise run_failure(program, refusal) from None
    forward_signals(container)
    exit_code = await_end(container, passes_output=True)
    _end(record, exit_code)
    return exit_code


def _choose_image(request: ContainerRequest, host: dict[str, Any]) -> dict[str, Any]:
    """Return the image that the reference names, and say what docker says when it must be pulled."""
    held = images.held_images(host)
    pull = request.flags.last("pull", "missing")
    image = None if pull == "always" else images.find_image(held, request.reference)
    if image is None and pull == "never":
        raise Refusal("no_such_image", reference=images.familiar_reference(request.reference))
    if image is None:
        reference = images.familiar_reference(request.reference)
        if pull == "missing" and request.program == "docker":
            os.write(2, f"Unable to find image '{reference}' locally\n".encode())
        elif request.program == "podman":
            os.write(2, f"Trying to pull {request.reference}...\n".encode())
        image = images.pull_image(host, request.reference)
    platform = request.flags.last("platform")
    wanted = platform.split("/")[1] if "/" in platform else platform
    if wanted and wanted != images.go_architecture(image["architecture"]):
        raise Refusal("wrong_platform", reference=request.reference, platform=platform)
    return image


def _create(request: ContainerRequest, image: dict[str, Any]) -> Record:
    """Record a container that has not started, which takes its name."""
    flags = request.flags
    container_id = os.urandom(32).hex()
    name = flags.last("name") or f"rehearsed_{container_id[:8]}"
    characters = name.replace("_", "").replace(".", "").replace("-", "")
    if not (characters.isascii() and characters.isalnum() and name[0].isalnum()):
        raise Refusal("bad_name", name=name)
    if request.program == "podman" and flags.has("replace"):
        _replace(name)
    record: Record = {
        "id": container_id,
        "name": name,
        "image": request.reference,
        "image_id": images.image_id(image),
        "words": _command_words(request, image),
        "labels": dict(_label_pair(label) for label in flags.all("label")),
        "network": request.network,
        "auto_remove": flags.has("rm"),
        "runtime": flags.last("runtime", "runc" if request.program == "docker" else "oci"),
        "device_requests": [_device_request(gpus) for gpus in request.gpus] or None,
        "stop_signal": flags.last("stop-signal", "SIGTERM"),
        "stop_timeout_s": int(flags.last("stop-timeout", "10")),
        "restart": flags.last("restart", "no"),
        "mounts": [
            {
                "Type": mount.kind,
                "Source": mount.source,
                "Destination": mount.target,
                "Mode": "ro" if mount.read_only else "",
                "RW": not mount.read_only,
            }
            for mount in request.mounts
        ],
        "variables": [],
        "log_driver": flags.last("log-driver", "json-file"),
        "status": "created",
        "exit_code": 0,
        "pid": 0,
        "pid_start": "",
        "client_pid": 0,
        "client_start": "",
        "created_at": timestamp(),
        "started_at": "",
        "finished_at": "",
    }
    add_record(record)
    if flags.last("cidfile"):
        with open(flags.last("cidfile"), "w", encoding="ascii") as file:
            file.write(container_id)
    return record


def _replace(name: str) -> None:
    """Remove a container of the same name, as `podman run --replace` does."""
    from .container_control import force_removal  # noqa: PLC0415  only here, saves start-up

    force_removal(name)


def _label_pair(label: str) -> tuple[str, str]:
    """Return key and value of a label."""
    key, _, value = label.partition("=")
    return key, value


def _command_words(request: ContainerRequest, image: dict[str, Any]) -> list[str]:
    """Return entry point and command as docker joins them."""
    if request.entrypoint is None:
        words = list(image.get("entrypoint") or [])
        return words + (request.command or list(image.get("command") or []))
    return [word for word in request.entrypoint if word] + request.command


def _is_foreign(image: dict[str, Any], host: dict[str, Any]) -> bool:
    """Return whether the image is of another processor architecture than the host."""
    theirs = images.go_architecture(image["architecture"])
    return theirs != images.go_architecture(host["architecture"])


def _fail_foreign(record: Record, request: ContainerRequest, image: dict[str, Any]) -> int:
    """End as a program of another architecture does; the warning names both."""
    words: list[str] = record["words"] or ["/bin/sh"]
    theirs = images.platform_text(image["architecture"])
    ours = images.platform_text(read_host()["architecture"])
    if not request.flags.last("platform"):
        warning = (
            f"WARNING: The requested image's platform ({theirs}) does not match the detected host "
            f"platform ({ours}) and no specific platform was requested\n"
        )
        os.write(2, warning.encode())
    path = words[0] if "/" in words[0] else f"/usr/local/bin/{words[0]}"
    os.write(2, f"exec {path}: exec format error\n".encode())
    _end(record, EXEC_FORMAT_EXIT_CODE)
    return EXEC_FORMAT_EXIT_CODE


def _start(
    request: ContainerRequest, host: dict[str, Any], image: dict[str, Any], record: Record
) -> RunningContainer:
    """Start the container and record that it runs."""
    launch = plan_launch(request, host, image, record)
    flush_streams()
    container = start_process(launch)
    record.update(
        status="running",
        pid=container.pid,
        pid_start=process_start(container.pid),
        client_pid=os.getpid(),
        client_start=process_start(os.getpid()),
        started_at=timestamp(),
        variables=[f"{key}={value}" for key, value in launch.variables.items()],
    )
    if not write_record(record):  # removed before it ran
        os.kill(container.pid, _signal.SIGKILL)
        await_end(container, passes_output=False)
        raise Refusal("container_unknown", reference=record["id"])
    return container


def _run_detached(
    request: ContainerRequest, host: dict[str, Any], image: dict[str, Any], record: Record
) -> int:
    """Start the container under a process that stays, print its id and leave."""
    reader, writer = os.pipe()
    flush_streams()
    if os.fork() == 0:
        os.setsid()
        _keep(request, host, image, record, writer)
    os.close(writer)
    report = b""
    while True:
        chunk = os.read(reader, 65536)
        if not chunk:
            break
        report += chunk
    facts = parse_document(
        report.decode() or '{"situation": "start_failed", "reason": "no report"}'
    )
    if facts["situation"]:
        raise Refusal(facts.pop("situation"), **facts)
    print(record["id"])
    return 0


def _keep(
    request: ContainerRequest,
    host: dict[str, Any],
    image: dict[str, Any],
    record: Record,
    writer: int,
) -> None:
    """Be the process that a detached container's client leaves behind; never return."""
    report: dict[str, str] = {"situation": ""}
    container = None
    try:
        container = _start(request, host, image, record)
    except Refusal as refusal:
        report = {"situation": refusal.situation, **refusal.facts}
    empty = os.open("/dev/null", os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(empty, descriptor)
    os.write(writer, format_document(report).encode())
    os.close(writer)
    if container is not None:
        _end(record, await_end(container, passes_output=False))
    os._exit(0)


def _device_request(gpus: GpuRequest) -> dict[str, Any]:
    """A request for devices as `docker inspect` shows it: by NVIDIA's hook, or by CDI."""
    if gpus.cdi_names:
        names = gpus.cdi_names
        return {
            "Driver": "cdi",
            "Count": 0,
            "DeviceIDs": names,
            "Capabilities": None,
            "Options": None,
        }
    return {
        "Driver": "",
        "Count": 0 if gpus.device_ids else gpus.count,
        "DeviceIDs": gpus.device_ids or None,
        "Capabilities": [["gpu"]],
        "Options": {},
    }


def _end(record: Record, exit_code: int) -> None:
    """Record that a container ended, or forget it when it was run with --rm."""
    if record["auto_remove"]:
        remove_record(record)
        return
    record.update(
        status="exited" if record["started_at"] else "created",
        exit_code=exit_code,
        finished_at=timestamp(),
    )
    write_record(record)
