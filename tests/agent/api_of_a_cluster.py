"""The API of a cluster as a pod reaches it: TLS, a token, and one DaemonSet. It runs as a program of its own.

`api_of_a_cluster.py FOLDER`: the folder holds `tls.pem`, `token` and `answer`, the object as JSON, or nothing for a
404; the port is written to `port`. Every request is added to `asked`.
"""

import http.server
import ssl
import sys
from pathlib import Path


def main(folder: Path) -> None:
    """Serve until killed."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with (folder / "asked").open("a") as stream:
                stream.write(self.path + "\n")
            is_known = (
                self.headers.get("Authorization") == "Bearer " + (folder / "token").read_text()
            )
            answer = (folder / "answer").read_bytes() if is_known else b"{}"
            self.send_response((200 if answer else 404) if is_known else 401)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    (folder / "port.new").write_text(str(server.server_address[1]))
    (folder / "port.new").rename(folder / "port")
    server.serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
