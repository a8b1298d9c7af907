"""The hub's HTTP on this machine, as far as `huggingface_hub` and `datasets` ask for it: repositories of a folder."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@contextmanager
def hub(root: Path) -> Iterator[str]:
    """Its address. root: `models/OWNER/NAME/…` and `datasets/OWNER/NAME/…`; one that has a file GATED is kept to those
    who asked. Every repository has the one COMMIT."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.do_GET()

        def do_GET(self) -> None:
            words = unquote(urlsplit(self.path).path).strip("/").split("/")
            api = words[:1] == ["api"]
            words = words[1:] if api else words
            kind = words.pop(0) if words[0] in ("models", "datasets") else "models"
            folder, (verb, revision, *rest) = root / kind / words[0] / words[1], [*words[2:], "revision", COMMIT][:99]
            if not folder.is_dir():
                return self._say(404, {"error": "Repository not found"}, "RepoNotFound")
            if (folder / "GATED").exists():
                return self._say(403, {"error": "Access to it is restricted"}, "GatedRepo")
            if revision != COMMIT:
                return self._say(404, {"error": "no such commit"}, "RevisionNotFound")
            files = sorted(path for path in folder.rglob("*") if path.is_file())
            if api:
                entries = [self._entry(path, folder) for path in files]
                about = {
                    "id": "/".join(words[:2]),
                    "sha": COMMIT,
                    "siblings": [{"rfilename": e["path"]} for e in entries],
                }
                return self._say(200, entries if verb in ("tree", "paths-info") else about)
            asked = folder.joinpath(*[word for word in rest if word not in ("revision", COMMIT)])
            if not asked.is_file():
                return self._say(404, {"error": "Entry not found"}, "EntryNotFound")
            return self._send(200, asked.read_bytes(), {"ETag": f'"{_oid(asked)}"', "X-Repo-Commit": COMMIT})

        def _entry(self, path: Path, folder: Path) -> dict[str, object]:
            name = path.relative_to(folder).as_posix()
            return {"type": "file", "path": name, "size": path.stat().st_size, "oid": _oid(path)}

        def _say(self, status: int, body: object, code: str = "") -> None:
            self._send(status, json.dumps(body).encode(), {"X-Error-Code": code} if code else {})

        def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def _oid(path: Path) -> str:
    return hashlib.sha1(path.read_bytes(), usedforsecurity=False).hexdigest()
