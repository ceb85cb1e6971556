"""An origin of checkpoints that spoils things: the APIs of Hugging Face, ModelScope and S3, as far as we ask.

It is standard library alone and runs by itself (`python3 simulated_hub.py FOLDER PORT`), so that simulated hosts can
run it: `FOLDER` holds the files, and `FOLDER.json` the spoiling, read anew for every request.
"""

import hashlib
import http.server
import json
import sys
import threading
import time
import urllib.parse
from pathlib import Path
from typing import Any

COMMIT = "c" * 40
BLOCK = 1 << 16


def git_sha1(content: bytes) -> str:
    """A git blob's name."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()  # noqa: S324


class Hub(http.server.ThreadingHTTPServer):
    """Serves one repository.

    Args:
        files: content by name.
    """

    daemon_threads = True

    def __init__(self, address: Any, files: dict[str, bytes]) -> None:
        self.files = files
        self.spoiling: dict[str, Any] = {}
        self.asked: list[str] = []
        self.headers_seen: list[dict[str, str]] = []
        super().__init__(address, _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def spoil(self) -> dict[str, Any]:
        """token: what a request must carry; status: answered to every file; wrong: files sent with a byte changed;
        cut: bytes after which an answer ends; pace: bytes per second of one answer; page: rows of one listing;
        no_sha256: a ModelScope that tells none; redirect: whether files lie on another server."""
        return self.spoiling

    def fetched(self) -> list[str]:
        """Names of the files that were asked for, in order."""
        return [name for name in self.asked if name in self.files]

    def shutdown_soon(self) -> None:
        threading.Thread(target=self.shutdown, daemon=True).start()


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:  # noqa: C901 - one branch per address
        parts = urllib.parse.urlsplit(self.path)
        path, query = urllib.parse.unquote(parts.path), dict(urllib.parse.parse_qsl(parts.query))
        self.server.headers_seen.append({k.lower(): v for k, v in self.headers.items()})
        token = self.server.spoil().get("token")
        is_store = path.startswith("/store/")
        if token and not is_store and self.headers.get("Authorization") != "Bearer " + token:
            self.send_error(401)
        elif path.startswith("/api/v1/models/") and path.endswith("/repo/files"):
            self._document({"Code": 200, "Data": {"Files": self._modelscope_rows()}})
        elif path.startswith("/api/v1/models/"):
            self._file(query["FilePath"])
        elif path.startswith("/api/models/") and "/revision/" in path:
            self._document({"sha": COMMIT})
        elif path.startswith("/api/models/"):
            self._tree(parts.path, int(query.get("from", 0)))
        elif "/resolve/" in path and self.server.spoil().get("redirect"):
            self.send_response(302)
            port = self.server.server_address[1]
            name = urllib.parse.quote(path.split("/", 5)[5])
            self.send_header("Location", f"http://localhost:{port}/store/{name}")
            self.end_headers()
        elif "/resolve/" in path:
            self._file(path.split("/", 5)[5])
        elif is_store:
            self._file(path.split("/", 2)[2])
        elif path == "/bucket/":
            self._objects(query)
        elif path.startswith("/bucket/kimi/"):
            self._file(path.split("/", 3)[3])
        else:
            self.send_error(404)

    def _tree(self, path: str, first: int) -> None:
        page = self.server.spoil().get("page", 1000)
        names = sorted(self.server.files)
        rows: list[dict[str, Any]] = [{"type": "directory", "path": "sub", "size": 0, "oid": "0"}]
        for name in names[first : first + page]:
            content = self.server.files[name]
            row = {"type": "file", "path": name, "size": len(content), "oid": git_sha1(content)}
            if name.endswith(".safetensors"):
                row["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content)}
            rows.append(row)
        following = f"{path}?recursive=1&from={first + page}"
        link = f'<{following}>; rel="next"' if first + page < len(names) else ""
        self._document(rows, link)

    def _modelscope_rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = [{"Type": "tree", "Path": "sub", "Size": 0}]
        for name, content in self.server.files.items():
            row = {"Type": "blob", "Path": name, "Size": len(content)}
            if not self.server.spoil().get("no_sha256"):
                row["Sha256"] = hashlib.sha256(content).hexdigest()
            rows.append(row)
        return rows

    def _objects(self, query: dict[str, str]) -> None:
        rows = "".join(
            f"<Contents><Key>kimi/{name}</Key><Size>{len(content)}</Size></Contents>"
            for name, content in self.server.files.items()
        )
        space = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
        text = f"<ListBucketResult {space}>{rows}</ListBucketResult>"
        self._send(200, text.encode(), "")
        del query

    def _file(self, name: str) -> None:
        spoiling = self.server.spoil()
        self.server.asked.append(name)
        if name not in self.server.files or spoiling.get("status"):
            self.send_error(spoiling.get("status") or 404)
            return
        content = self.server.files[name]
        if name in spoiling.get("wrong", []):
            content = bytes([content[0] ^ 1]) + content[1:]
        offset = int((self.headers.get("Range") or "bytes=0-")[6:-1])
        self.send_response(206 if offset else 200)
        self.send_header("Content-Length", str(len(content) - offset))
        self.end_headers()
        end = min(len(content), offset + spoiling.get("cut", len(content)))
        pace = spoiling.get("pace")
        while offset < end:
            begun = time.monotonic()
            block = content[offset : min(end, offset + BLOCK)]
            self.wfile.write(block)
            offset += len(block)
            if pace:
                time.sleep(max(len(block) / pace - (time.monotonic() - begun), 0))

    def _document(self, document: object, link: str = "") -> None:
        self._send(200, json.dumps(document).encode(), link)

    def _send(self, status: int, content: bytes, link: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        if link:
            self.send_header("Link", link)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its parent's name
        pass


def main(folder: str, port: str) -> None:
    """Serve the files of a folder."""
    files = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
    hub = Hub(("", int(port)), files)

    def spoil() -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(Path(folder + ".json").read_text())
        except (OSError, ValueError):
            return {}
        return found

    hub.spoil = spoil  # type: ignore[method-assign]  # read anew for every request
    hub.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
