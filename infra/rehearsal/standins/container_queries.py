"""The docker and podman commands that only tell: ps, inspect, images, logs."""

from __future__ import annotations

import os
import time

from . import images
from .container_records import find_record, is_running, list_records, record_folder
from .documents import format_document
from .failures import CommandFailure, Refusal
from .go_template import TemplateError, render_template
from .host_state import read_host

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .container_records import Record
    from .flags import ParsedFlags

TEMPLATE_EXIT_CODE = 64
SHORT_ID = 12
FILTERS = ("name", "id", "label", "status", "ancestor")
COMMAND_WIDTH = 20
FOLLOW_INTERVAL_S = 0.1


def show_containers(program: str, flags: ParsedFlags) -> int:
    """Do `ps`."""
    for condition in flags.all("filter"):
        _check_filter(program, condition.partition("=")[0])
    records = list_records()
    if not flags.has("all") and not flags.has("latest") and "last" not in flags.given:
        records = [record for record in records if is_running(record)]
    if flags.has("latest"):
        records = records[:1]
    if "last" in flags.given:
        records = records[: int(flags.last("last"))]
    conditions = flags.all("filter")
    for key in dict.fromkeys(condition.partition("=")[0] for condition in conditions):
        asked = [condition for condition in conditions if condition.partition("=")[0] == key]
        # as moby's filters have it, and podman's: all labels, any of the rest
        holds = all if key == "label" else any
        records = [item for item in records if holds(_matches(item, each) for each in asked)]
    rows = [_container_row(record, is_full=flags.has("no-trunc")) for record in records]
    if flags.has("quiet"):
        print("".join(row["ID"] + "\n" for row in rows), end="")
        return 0
    columns = {
        "ID": "CONTAINER ID",
        "Image": "IMAGE",
        "Command": "COMMAND",
        "CreatedAt": "CREATED",
        "Status": "STATUS",
        "Ports": "PORTS",
        "Names": "NAMES",
    }
    _print_rows(rows, columns, flags.last("format"))
    return 0


def show_images(_program: str, flags: ParsedFlags) -> int:
    """Do `images`."""
    rows = []
    for image in images.held_images(read_host()):
        name, tag, _ = images.split_reference(image["reference"])
        identifier = images.image_id(image)
        row = {
            "Repository": name,
            "Tag": tag,
            "Digest": image.get("digest") or "<none>",
            "ID": identifier if flags.has("no-trunc") else identifier[7 : 7 + SHORT_ID],
            "CreatedAt": "2026-01-01 00:00:00 +0000 UTC",
            "CreatedSince": "2 months ago",
            "Size": f"{image.get('size_bytes', 20_000_000_000) / 1e9:.3g}GB",
        }
        if not flags.words or flags.words[0] in (name, f"{name}:{tag}"):
            rows.append(row)
    if flags.has("quiet"):
        print("".join(row["ID"] + "\n" for row in rows), end="")
        return 0
    columns = {"Repository": "REPOSITORY", "Tag": "TAG"}
    if flags.has("digests"):
        columns["Digest"] = "DIGEST"
    columns.update({"ID": "IMAGE ID", "CreatedSince": "CREATED", "Size": "SIZE"})
    _print_rows(rows, columns, flags.last("format"))
    return 0


def inspect_images(program: str, flags: ParsedFlags) -> int:
    """Do `image inspect`."""
    return _inspect(program, flags, ("image",))


def inspect_objects(program: str, flags: ParsedFlags) -> int:
    """Do `inspect`, of containers first."""
    kind = flags.last("type")
    return _inspect(program, flags, (kind,) if kind else ("container", "image"))


def show_logs(_program: str, flags: ParsedFlags) -> int:
    """Do `logs`: both streams come out as one, on standard output."""
    record = find_record(flags.words[0])
    if record["log_driver"] in ("none", "passthrough"):
        raise Refusal("log_not_readable")
    path = record_folder(record["id"]) + "/log"
    position = 0
    tail = flags.last("tail", "all")
    while True:
        running = is_running(record)
        content = b""
        if os.path.exists(path):
            with open(path, "rb") as file:
                file.seek(position)
                content = file.read()
        if position == 0 and tail.isdigit():
            lines = content.splitlines(keepends=True)
            shown = b"".join(lines[len(lines) - min(int(tail), len(lines)) :])
        else:
            shown = content
        os.write(1, shown)
        position += len(content)
        if not flags.has("follow") or not running:
            return 0
        time.sleep(FOLLOW_INTERVAL_S)


def _check_filter(program: str, key: str) -> None:
    """Refuse a filter that is not known, whether there are containers or not.

    Words of moby api/types/filters/errors.go and of podman pkg/domain/filters/containers.go.
    """
    if key in FILTERS:
        return
    if program == "podman":
        raise CommandFailure(f"Error: {key} is an invalid filter", 125)
    raise CommandFailure(f"Error response from daemon: invalid filter '{key}'", 1)


def _matches(record: Record, condition: str) -> bool:
    """Return whether a container meets one `--filter`."""
    key, _, value = condition.partition("=")
    if key == "name":
        return value.lstrip("^/").rstrip("$") in record["name"]
    if key == "id":
        return bool(record["id"].startswith(value))
    if key == "label":
        label, equals, wanted = value.partition("=")
        labels = record["labels"]
        return label in labels and (not equals or labels[label] == wanted)
    if key == "status":
        return _state(record) == value
    return images.split_reference(record["image"]) == images.split_reference(value)


def _state(record: Record) -> str:
    """Return `running`, `created` or `exited`."""
    if record["status"] == "running" and not is_running(record):
        return "exited"
    status: str = record["status"]
    return status


def _container_row(record: Record, *, is_full: bool) -> dict[str, str]:
    """Return what `ps` knows of one container, by the names of its template."""
    state = _state(record)
    status = {
        "running": "Up Less than a second",
        "created": "Created",
        "exited": f"Exited ({record['exit_code']}) Less than a second ago",
    }[state]
    command = " ".join(record["words"])
    if not is_full and len(command) > COMMAND_WIDTH:
        command = command[: COMMAND_WIDTH - 1] + "…"
    return {
        "ID": record["id"] if is_full else record["id"][:SHORT_ID],
        "Image": record["image"],
        "Command": f'"{command}"',
        "CreatedAt": record["created_at"][:19].replace("T", " ") + " +0000 UTC",
        "RunningFor": "Less than a second ago",
        "Status": status,
        "State": state,
        "Ports": "",
        "Names": record["name"],
        "Labels": ",".join(f"{key}={value}" for key, value in record["labels"].items()),
        "Networks": record["network"],
        "Mounts": ",".join(mount["Source"] for mount in record["mounts"]),
    }


def _print_rows(rows: list[dict[str, str]], columns: dict[str, str], template: str) -> None:
    """Print rows as a table, as JSON lines or through a template."""
    is_table = template.startswith("table ")
    template = template[len("table ") :] if is_table else template
    if template == "json":
        print("".join(format_document(row) + "\n" for row in rows), end="")
    elif template not in ("", "table"):
        if is_table:
            titles = {name: columns.get(name, name.upper()) for row in rows[:1] for name in row}
            rows = [titles or columns, *rows]
        print("".join(fill_template(template, row) + "\n" for row in rows), end="")
    else:
        table = [columns, *rows]
        widths = {name: max(len(row[name]) for row in table) for name in columns}
        for row in table:
            print("   ".join(row[name].ljust(widths[name]) for name in columns).rstrip())


def fill_template(template: str, document: Any) -> str:
    """Return a filled template, or the document when the template is `json`."""
    if template == "json":
        return format_document(document)
    try:
        return render_template(template, document)
    except TemplateError as error:
        raise CommandFailure(f"template parsing error: {error}", TEMPLATE_EXIT_CODE) from None


def _inspect(program: str, flags: ParsedFlags, kinds: tuple[str, ...]) -> int:
    """Print documents of the named objects; what is not found is an error after the others."""
    documents: list[dict[str, Any]] = []
    errors: list[str] = []
    for reference in flags.words:
        document = _find_document(reference, kinds)
        if document is not None:
            documents.append(document)
        elif kinds == ("image",):
            name = images.familiar_reference(reference)
            refusal = Refusal("no_such_image", reference=name)
            prefix = "Error: " if program == "podman" else "Error response from daemon: "
            errors.append(prefix + refusal.text_for(program))
        else:
            errors.append(f"Error: No such object: {reference}")
    template = flags.last("format")
    if template in ("", "json"):
        print(format_document(documents, "" if template else "    "))
    elif documents:
        print("\n".join(fill_template(template, document) for document in documents))
    else:
        print()
    if errors:
        raise CommandFailure("\n".join(errors), 125 if program == "podman" else 1)
    return 0


def _find_document(reference: str, kinds: tuple[str, ...]) -> dict[str, Any] | None:
    """Return the document of a container or image, or None."""
    if "container" in kinds:
        try:
            return _container_document(find_record(reference))
        except Refusal:
            pass
    if "image" in kinds:
        image = images.find_image(images.held_images(read_host()), reference)
        if image is not None:
            return images.image_document(image)
    return None


def _container_document(record: Record) -> dict[str, Any]:
    """Return what `docker inspect` prints of a container."""
    state = _state(record)
    return {
        "Id": record["id"],
        "Created": record["created_at"],
        "Path": (record["words"] or [""])[0],
        "Args": record["words"][1:],
        "State": {
            "Status": state,
            "Running": state == "running",
            "Paused": False,
            "Restarting": False,
            "OOMKilled": False,
            "Dead": False,
            "Pid": record["pid"] if state == "running" else 0,
            "ExitCode": record["exit_code"],
            "Error": "",
            "StartedAt": record["started_at"] or "0001-01-01T00:00:00Z",
            "FinishedAt": record["finished_at"] or "0001-01-01T00:00:00Z",
        },
        "Image": record["image_id"],
        "Name": "/" + record["name"],
        "RestartCount": 0,
        "HostConfig": {
            "NetworkMode": record["network"],
            "AutoRemove": record["auto_remove"],
            "RestartPolicy": {"Name": record["restart"], "MaximumRetryCount": 0},
            "LogConfig": {"Type": record["log_driver"], "Config": {}},
            "Runtime": record["runtime"],
            "DeviceRequests": record["device_requests"],
        },
        "Mounts": record["mounts"],
        "Config": {
            "Image": record["image"],
            "Cmd": record["words"],
            "Env": record["variables"],
            "Labels": record["labels"],
            "StopSignal": record["stop_signal"],
        },
    }
