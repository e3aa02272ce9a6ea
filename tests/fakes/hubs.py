"""Hubs on this machine, as their own clients ask them; each holds one repository and can fail."""

import hashlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPOSITORY = "owner/demo"
# Files of this kind lie in the hubs' large-file stores, under their SHA-256.
_STORED = (".safetensors",)
CHUNK = 1 << 18


@dataclass
class Hub:
    """What a hub holds, what it was asked, and how it fails; all may be changed while it runs.

    `cuts` is how many bodies of large files break off after `cut_at` bytes; `spoiled` names files whose content is not
    what the hub's hashes promise; with `tagless` the tags of large files are no hashes; `before_chunk` is called before
    each part of a large file.
    """

    url: str
    files: dict[str, bytes]
    requests: list[str] = field(default_factory=list)
    ranges: list[str] = field(default_factory=list)
    tokens_at_store: list[str] = field(default_factory=list)
    cut_at: int = 0
    cuts: int = 0
    spoiled: set[str] = field(default_factory=set)
    tagless: bool = False
    before_chunk: Callable[[], None] = lambda: None

    def content(self, name: str) -> bytes:
        """What is sent for a file."""
        data = self.files[name]
        return data[:-1] + bytes([data[-1] ^ 1]) if name in self.spoiled else data


class _Server(ThreadingHTTPServer):
    hub: Hub
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that leaves is what these tests do."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def log_message(self, *_: object) -> None:
        pass

    def answer(self) -> None:
        raise NotImplementedError

    def send(self, data: bytes, *, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, text in {"Content-Length": str(len(data)), "X-Repo-Commit": COMMIT, **headers}.items():
            self.send_header(name.replace("_", "-"), text)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def send_json(self, value: object, *, status: int = 200, **headers: str) -> None:
        self.send(json.dumps(value).encode(), status=status, Content_Type="application/json", **headers)

    def send_large(self, name: str) -> None:
        """A file, or the part of it that is asked for, cut off if the hub is to fail."""
        hub, data, begin = self.server.hub, self.server.hub.content(name), 0
        wanted = self.headers.get("Range")
        if wanted:
            hub.ranges.append(wanted)
            begin = int(wanted.removeprefix("bytes=").partition("-")[0])
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(data) - begin))
        self.send_header("Accept-Ranges", "bytes")
        if wanted:
            self.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
        self.end_headers()
        if self.command == "HEAD":
            return
        end = len(data)
        if hub.cuts and end - begin > hub.cut_at:
            hub.cuts -= 1
            end = min(end, begin + hub.cut_at)
        for place in range(begin, end, CHUNK):
            hub.before_chunk()
            self.wfile.write(data[place : min(place + CHUNK, end)])
        if end < len(data):
            self.wfile.flush()
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)


class _HuggingFace(_Handler):
    def answer(self) -> None:
        hub, path = self.server.hub, self.path.partition("?")[0]
        hub.requests.append(f"{self.command} {path}")
        name = path.removeprefix(f"/{REPOSITORY}/resolve/{COMMIT}/")
        if path.startswith("/store/"):
            hub.tokens_at_store.append(self.headers.get("Authorization") or "")
            self.send_large(next(n for n, data in hub.files.items() if sha256(data) == path.removeprefix("/store/")))
        elif path.startswith(f"/api/models/{REPOSITORY}/revision/") or path == f"/api/models/{REPOSITORY}":
            self.send_json({"id": REPOSITORY, "sha": COMMIT, "siblings": []})
        elif path.startswith(f"/api/models/{REPOSITORY}/tree/"):
            self.send_json([_row(name, data) for name, data in hub.files.items()])
        elif name in hub.files and name.endswith(_STORED):
            # The store is another host, as it is in truth: the hub's token is not for it.
            where = f"http://localhost:{self.server.server_port}/store/{sha256(hub.files[name])}"
            tag = "1-abc" if hub.tagless else sha256(hub.files[name])
            linked = {"X_Linked_ETag": f'"{tag}"', "X_Linked_Size": str(len(hub.files[name]))}
            self.send(b"", status=302, Location=where, **linked)
        elif name in hub.files:
            self.send(hub.content(name), ETag=f'"{git_name(hub.files[name])}"')
        else:
            self.send(b"{}", status=404, X_Error_Code="RepoNotFound")


class _ModelScope(_Handler):
    def answer(self) -> None:
        hub, parts = self.server.hub, urlsplit(self.path)
        hub.requests.append(f"{self.command} {self.path}")
        base = f"/api/v1/models/{REPOSITORY}"
        name = (parse_qs(parts.query).get("FilePath") or [""])[0]
        if parts.path == f"{base}/repo/files":
            rows = [
                {"Path": name, "Name": name, "Type": "blob", "Size": len(data), "Sha256": sha256(data)}
                for name, data in hub.files.items()
            ]
            self.send_json({"Code": 200, "Success": True, "Data": {"Files": rows}})
        elif parts.path == f"{base}/repo" and name in hub.files:
            self.send_large(name)
        elif parts.path == base:
            self.send_json({"Code": 200, "Success": True, "Data": {"Name": "demo", "Path": "owner"}})
        else:
            self.send_json({"Code": 10010205001, "Success": False, "Message": "no such thing"}, status=404)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def git_name(data: bytes) -> str:
    """Git's own name for a file, by which the client recognises what it has."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _row(name: str, data: bytes) -> dict[str, object]:
    row: dict[str, object] = {"type": "file", "path": name, "size": len(data), "oid": git_name(data)}
    if name.endswith(_STORED):
        row["lfs"] = {"oid": sha256(data), "size": len(data), "pointerSize": 134}
    return row


def files_of(folder: Path) -> dict[str, bytes]:
    """The files of a model that a hub would hold."""
    names = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors")
    return {name: (folder / name).read_bytes() for name in (*names, "chat_template.jinja")}


@contextmanager
def _running(handler: type[_Handler], files: dict[str, bytes]) -> Iterator[Hub]:
    with _Server(("127.0.0.1", 0), handler) as server:
        server.hub = Hub(f"http://127.0.0.1:{server.server_port}", files)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.hub
        finally:
            server.shutdown()
            thread.join()


def huggingface(files: dict[str, bytes]) -> AbstractContextManager[Hub]:
    """Hugging Face, with its store of large files on another host name."""
    return _running(_HuggingFace, files)


def modelscope(files: dict[str, bytes]) -> AbstractContextManager[Hub]:
    """ModelScope."""
    return _running(_ModelScope, files)
