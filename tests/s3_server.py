"""The S3 server of the tests: objects in a folder, so that it can be killed and started again with what it held.

It honours conditional puts, multipart uploads, listings in pages and ranges, and refuses a PUT above a size. Signatures
are not checked.
"""

import argparse
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit
from urllib.request import Request, urlopen
from xml.sax.saxutils import escape

from tests.servers import REPO, free_port

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}
BLOCK = 1 << 16


class ObjectStorage:
    """The server in a process of its own. page: objects in one answer to a listing. most: bytes of one PUT."""

    def __init__(self, folder: Path, page: int = 1000, most: int = 5 << 30) -> None:
        self.port, self.log = free_port(), folder / "requests"
        self.url = f"http://127.0.0.1:{self.port}"
        self.environment = {"AWS_ENDPOINT_URL_S3": self.url} | CREDENTIALS
        self._command = [sys.executable, "-m", "tests.s3_server", str(self.port), str(folder), str(page), str(most)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, cwd=REPO)
        for _ in range(400):
            try:
                with urlopen(self.url, timeout=1):
                    return
            except OSError:
                time.sleep(0.05)
        raise AssertionError("the S3 server did not come up")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def make_bucket(self, name: str) -> None:
        with urlopen(Request(f"{self.url}/{name}", method="PUT"), timeout=10):
            pass

    def requests(self) -> list[str]:
        """Those that were answered so far, such as `PUT /bucket/key 1024`, the last word being the body's bytes."""
        return self.log.read_text().splitlines() if self.log.exists() else []


@contextmanager
def object_storage(page: int = 1000, most: int = 5 << 30) -> Iterator[ObjectStorage]:
    with tempfile.TemporaryDirectory(prefix="varband-s3-") as folder:
        server = ObjectStorage(Path(folder), page, most)
        server.start()
        try:
            yield server
        finally:
            server.kill()


class Buckets:
    """What the folder holds: per bucket a folder of objects, each a file that begins with its key and its ETag."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.lock = folder, threading.Lock()
        self.objects: dict[str, dict[str, tuple[Path, str, int, float]]] = {}
        for bucket in folder.glob("bucket-*"):
            held = self.objects[bucket.name.removeprefix("bucket-")] = {}
            for path in sorted(bucket.iterdir(), key=lambda p: p.stat().st_mtime_ns):
                key, etag, moment = path.name.split(" ")
                held[unquote(key)] = path, etag, path.stat().st_size, float(moment)

    def make(self, bucket: str) -> None:
        (self.folder / f"bucket-{bucket}").mkdir(exist_ok=True)
        self.objects.setdefault(bucket, {})

    def put(self, bucket: str, key: str, body: Path, etag: str, headers: object) -> int:
        """The HTTP status: 200, or 412 where the condition does not hold."""
        known = headers.get  # type: ignore[attr-defined]
        with self.lock:
            held = self.objects[bucket]
            old = held.get(key)
            if (known("If-None-Match") and old) or (
                (wanted := known("If-Match")) and (not old or old[1] != wanted.strip('"'))
            ):
                body.unlink()
                return 412
            moment = time.time()
            path = self.folder / f"bucket-{bucket}" / f"{quote(key, safe='')} {etag} {moment:.6f}"
            size = body.stat().st_size
            os.rename(body, path)
            held[key] = path, etag, size, moment
            if old:
                old[0].unlink()
            return 200

    def delete(self, bucket: str, key: str) -> None:
        with self.lock:
            if old := self.objects[bucket].pop(key, None):
                old[0].unlink()


class Handler(BaseHTTPRequestHandler):
    protocol_version, disable_nagle_algorithm, wbufsize = "HTTP/1.1", True, BLOCK
    buckets: Buckets
    page: int
    most: int
    log: Path

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)
        with self.log.open("a") as log:
            log.write(f"{self.command} {unquote(self.path)} {self.headers.get('Content-Length', 0)}\n")

    def _refuse(self, status: int, code: str) -> None:
        body = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
        self._answer(status, b"" if self.command == "HEAD" else body)

    def _body(self) -> tuple[Path, str]:
        """(file, MD5) of the request's body, which is never held whole."""
        path, digest = self.buckets.folder / f"part-{uuid.uuid4().hex}", hashlib.md5()
        left = int(self.headers.get("Content-Length", 0))
        with path.open("wb") as file:
            while left and (block := self.rfile.read(min(left, BLOCK))):
                left -= len(block)
                digest.update(block)
                file.write(block)
        return path, digest.hexdigest()

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        asked = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        body, digest = self._body()
        try:
            if not bucket:
                self._answer(200)
            elif self.command == "PUT" and not key:
                self.buckets.make(bucket)
                self._answer(200)
            elif bucket not in self.buckets.objects:
                self._refuse(404, "NoSuchBucket")
            elif body.stat().st_size > self.most:
                self._refuse(400, "EntityTooLarge")
            elif not key:
                self._delete_many(bucket, body) if self.command == "POST" else self._list(bucket, asked)
            elif "uploads" in asked or "uploadId" in asked:
                self._multipart(bucket, key, asked, body, digest)
            elif self.command == "PUT":
                status = self.buckets.put(bucket, key, body, digest, self.headers)
                self._answer(200, ETag=f'"{digest}"') if status == 200 else self._refuse(412, "PreconditionFailed")
            elif self.command == "DELETE":
                self.buckets.delete(bucket, key)
                self._answer(204)
            else:
                self._get(bucket, key)
        finally:
            body.unlink(missing_ok=True)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle

    def _get(self, bucket: str, key: str) -> None:
        with self.buckets.lock:
            if (found := self.buckets.objects[bucket].get(key)) is None:
                return self._refuse(404, "NoSuchKey")
            path, etag, size, moment = found
            file = path.open("rb")
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        start, end = (int(asked[1]), min(size, int(asked[2] or size) + 1)) if asked else (0, size)
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(end - start))
        self.send_header("ETag", f'"{etag}"')
        self.send_header("Last-Modified", formatdate(moment, usegmt=True))
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{size}")
        self.end_headers()
        with file:
            file.seek(start)
            while self.command == "GET" and start < end and (block := file.read(min(BLOCK, end - start))):
                self.wfile.write(block)
                start += len(block)
        with self.log.open("a") as log:
            log.write(f"{self.command} {unquote(self.path)} 0\n")

    def _list(self, bucket: str, asked: dict[str, str]) -> None:
        prefix, after = asked.get("prefix", ""), asked.get("continuation-token") or asked.get("start-after", "")
        with self.buckets.lock:
            held = dict(self.buckets.objects[bucket])
        names = sorted(key for key in held if key.startswith(prefix) and key > after)
        some = names[: min(self.page, int(asked.get("max-keys", self.page)))]
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>{_iso(held[key][3])}</LastModified>"
            f"<ETag>&quot;{held[key][1]}&quot;</ETag><Size>{held[key][2]}</Size></Contents>"
            for key in some
        )
        more = len(names) > len(some)
        token = f"<NextContinuationToken>{escape(some[-1])}</NextContinuationToken>" if more else ""
        head = f"<Name>{bucket}</Name><KeyCount>{len(some)}</KeyCount><IsTruncated>{str(more).lower()}</IsTruncated>"
        self._answer(200, f"<ListBucketResult>{head}{token}{rows}</ListBucketResult>".encode())

    def _delete_many(self, bucket: str, body: Path) -> None:
        for key in (keys := re.findall(r"<Key>(.*?)</Key>", body.read_text())):
            self.buckets.delete(bucket, key)
        done = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        self._answer(200, f"<DeleteResult>{done}</DeleteResult>".encode())

    def _multipart(self, bucket: str, key: str, asked: dict[str, str], body: Path, digest: str) -> None:
        upload = self.buckets.folder / f"upload-{asked.get('uploadId', uuid.uuid4().hex)}"
        if "uploads" in asked:
            upload.mkdir()
            name = upload.name.removeprefix("upload-")
            text = f"<UploadId>{name}</UploadId><Bucket>{bucket}</Bucket><Key>{escape(key)}</Key>"
            return self._answer(200, f"<InitiateMultipartUploadResult>{text}</InitiateMultipartUploadResult>".encode())
        if self.command == "PUT":
            os.rename(body, upload / f"{int(asked['partNumber']):05d}-{digest}")
            return self._answer(200, ETag=f'"{digest}"')
        parts = sorted(upload.iterdir())
        if self.command == "POST":
            with (whole := upload / "whole").open("wb") as file:
                for part in parts:
                    file.write(part.read_bytes())
                    part.unlink()
            etag = hashlib.md5(b"".join(bytes.fromhex(part.name.partition("-")[2]) for part in parts)).hexdigest()
            status = self.buckets.put(bucket, key, whole, etag := f"{etag}-{len(parts)}", self.headers)
            if status != 200:
                return self._refuse(412, "PreconditionFailed")
            text = f"<ETag>&quot;{etag}&quot;</ETag><Bucket>{bucket}</Bucket><Key>{escape(key)}</Key>"
            text = f"<CompleteMultipartUploadResult>{text}</CompleteMultipartUploadResult>"
            return self._answer(200, text.encode())
        for part in parts:
            part.unlink()
        self._answer(204)

    def log_message(self, format: str, *args: object) -> None: ...


class Server(ThreadingHTTPServer):
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that was killed is none of its business."""


def _iso(moment: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(moment))


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("page", type=int)
    parser.add_argument("most", type=int)
    given = parser.parse_args()
    Handler.buckets, Handler.page, Handler.most = Buckets(given.folder), given.page, given.most
    Handler.log = given.folder / "requests"
    Server(("127.0.0.1", given.port), Handler).serve_forever()


if __name__ == "__main__":
    _main()
