"""What clients of the container stand-ins keep on one host, while several of them change it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from infra.rehearsal.standins.container_records import (
    add_record,
    list_records,
    remove_record,
    write_record,
)

CLIENTS = 4
# Containers whose processes and clients have ended unseen, as every other client finds and settles them.
CLIENT = """\
import os
from infra.rehearsal.standins.container_records import add_record, list_records, remove_record
for number in range(150):
    name = f"{os.getpid()}-{number}"
    record = dict(id=name, name=name, status="running", pid=0, pid_start="1", client_pid=0, client_start="1",
                  auto_remove=number % 2 == 0, created_at=name)
    add_record(record)
    list_records()
    remove_record(record)
"""


def test_clients_that_settle_and_remove_the_same_containers_do_not_fail(tmp_path: Path) -> None:
    environment = {**os.environ, "MOE_REHEARSAL_RUN": str(tmp_path)}
    clients = [
        subprocess.Popen(
            [sys.executable, "-c", CLIENT], env=environment, stderr=subprocess.PIPE, text=True
        )
        for _ in range(CLIENTS)
    ]
    said = [client.communicate(timeout=60)[1] for client in clients]
    assert [client.returncode for client in clients] == [0] * CLIENTS, "\n".join(said)
    (records,) = tmp_path.iterdir()
    assert list(records.iterdir()) == []


def test_a_container_that_is_removed_is_not_written_again(host_tool: Callable[..., None]) -> None:
    host_tool("nvidia")
    record = {"id": "1a", "name": "engine", "status": "created"}
    add_record(record)
    assert write_record(record)
    remove_record(record)
    remove_record(record)
    assert not write_record(record)
    assert list_records() == []
