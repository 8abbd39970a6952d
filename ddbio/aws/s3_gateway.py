"""Local S3 gateway to the objects of a store, for libraries with their own S3 client.

Such a client has no options for an expected bucket owner, tags or Object Lock, and does not refresh its credentials.
The gateway forwards its requests to the client of the store, which all other requests of the job use.
"""

from __future__ import annotations

import os
import re
import secrets
import threading
import weakref
from dataclasses import dataclass
from datetime import UTC
from email.utils import format_datetime
from html import unescape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape

from botocore.exceptions import BotoCoreError, ClientError

from ddbio.aws.error_codes import error_code, to_ddbio_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddbio.aws.s3_store import S3Store

_BUCKET = "table"
_TOKEN = re.compile(r"Credential=(\w+)/")
_PART = re.compile(r"<PartNumber>\s*(\d+)\s*</PartNumber>")
_KEY = re.compile(r"<Key>(.*?)</Key>", re.DOTALL)
# Responses that clients handle: a missing object, or a concurrent writer. All others are errors of the job.
_ANSWERS = frozenset({304, 404, 409, 412, 416})
_REFUSED = 400


class S3Gateway:
    """S3 gateway that forwards the requests of a library to the client of a store. Paths cannot leave the store.

    It listens on the loopback interface, and accepts requests that are signed with its random access key.

    Parameters
    ----------
    store
        The store to serve.

    Attributes
    ----------
    uri
        Location of the store's objects for the library.
    failure
        The latest error of S3. The library reports it in other words.
    """

    uri = f"s3://{_BUCKET}"

    def __init__(self, store: S3Store) -> None:
        self.failure: Exception | None = None
        self._store = store
        self._parts: dict[tuple[str, int], dict[str, Any]] = {}
        self._token = secrets.token_hex(16)
        _SERVED[self._token] = self
        self._port = _port(os.getpid())

    def connection_settings(self) -> dict[str, str]:
        """Return credentials, region and endpoint as environment variables."""
        return {
            "AWS_ACCESS_KEY_ID": self._token,
            "AWS_SECRET_ACCESS_KEY": self._token,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": (endpoint := f"http://127.0.0.1:{self._port}"),
            "AWS_ENDPOINT_URL_S3": endpoint,  # an environment variable of this name would have precedence
            "AWS_ALLOW_HTTP": "true",
            "AWS_SKIP_SIGNATURE": "false",
            "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
            # Without an explicit proxy, the library uses that of HTTP_PROXY, which cannot reach this process.
            "PROXY_URL": endpoint,
            "PROXY_EXCLUDES": "127.0.0.1",
        }

    def answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> _Answer:
        """Return the response to a request, whose headers are in lower case.

        An error is kept, and its response prevents retries of the library: the client of the store has already retried.
        """
        parts = urlsplit(target)
        key, query = unquote(parts.path).partition(f"/{_BUCKET}")[2].lstrip("/"), dict(parse_qsl(parts.query, True))  # noqa: FBT003 - names without a value
        action = _action(method, query, key)
        try:
            return self._answer(method, key, query, headers, body)
        except (BotoCoreError, ClientError) as error:
            status = error.response["ResponseMetadata"]["HTTPStatusCode"] if isinstance(error, ClientError) else 0
            if status not in _ANSWERS:
                self.failure = to_ddbio_error(error, action=action, resource=f"{self._store.uri}/{key}")
                status = _REFUSED
            return _Answer(status, _xml("Error", f"<Code>{escape(error_code(error) or 'Refused')}</Code>"))
        except Exception as error:  # noqa: BLE001 - raised where the library was called
            self.failure = error
            return _Answer(_REFUSED, _xml("Error", "<Code>Refused</Code>"))

    def _answer(
        self, method: str, key: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> _Answer:
        if method in {"GET", "HEAD"}:
            return self._read(method, key, headers) if key else self._listed(query)
        if "delete" in query:
            self._store.delete([unescape(name) for name in _KEY.findall(body.decode())])
            return _Answer(200, _xml("DeleteResult", ""))
        client, location, sums = self._store.at(key)
        if "uploads" in query:
            upload_id = client.create_multipart_upload(**location, **sums)["UploadId"]
            return _Answer(200, _xml("InitiateMultipartUploadResult", f"<UploadId>{escape(upload_id)}</UploadId>"))
        if "uploadId" in query:
            return self._upload(method, key, query, body)
        if method == "DELETE":
            client.delete_object(**location)
            return _Answer(204)
        guards = {name: headers[header] for name, header in _GUARDS.items() if header in headers}
        response = client.put_object(**location, Body=body, **guards)
        return _Answer(200, headers={"ETag": response["ETag"]})

    def _read(self, method: str, key: str, headers: Mapping[str, str]) -> _Answer:
        client, location, _ = self._store.at(key)
        wanted = {"Range": headers["range"]} if "range" in headers else {}
        wanted |= {name: headers[header] for name, header in _GUARDS.items() if header in headers}
        response = getattr(client, f"{method.lower()}_object")(**location, **wanted)
        data = response["Body"].read() if method == "GET" else b""
        shown = {
            "ETag": response["ETag"],
            "Last-Modified": format_datetime(response["LastModified"].astimezone(UTC), usegmt=True),
            "Content-Length": str(response["ContentLength"]),
        }
        if "ContentRange" in response:
            return _Answer(206, data, shown | {"Content-Range": response["ContentRange"]})
        return _Answer(200, data, shown)

    def _listed(self, query: Mapping[str, str]) -> _Answer:
        client, bucket, start = self._store.listing()
        top = len(start)
        names = {"delimiter": "Delimiter", "continuation-token": "ContinuationToken", "max-keys": "MaxKeys"}
        members: dict[str, Any] = {names[name]: query[name] for name in names if query.get(name)}
        if query.get("start-after"):
            members["StartAfter"] = start + query["start-after"]
        if "MaxKeys" in members:
            members["MaxKeys"] = int(members["MaxKeys"])
        response = client.list_objects_v2(Bucket=bucket, Prefix=start + query.get("prefix", ""), **members)
        inner = "".join(
            f"<Contents><Key>{escape(entry['Key'][top:])}</Key><LastModified>{entry['LastModified']:%Y-%m-%dT%H:%M:%S.000Z}"
            f"</LastModified><ETag>{escape(entry['ETag'])}</ETag><Size>{entry['Size']}</Size></Contents>"
            for entry in response.get("Contents", [])
        )
        for prefix in response.get("CommonPrefixes", []):
            inner += f"<CommonPrefixes><Prefix>{escape(prefix['Prefix'][top:])}</Prefix></CommonPrefixes>"
        if response.get("NextContinuationToken"):
            inner += f"<NextContinuationToken>{escape(response['NextContinuationToken'])}</NextContinuationToken>"
        return _Answer(
            200, _xml("ListBucketResult", f"<IsTruncated>{str(response['IsTruncated']).lower()}</IsTruncated>{inner}")
        )

    def _upload(self, method: str, key: str, query: Mapping[str, str], body: bytes) -> _Answer:
        (client, location, sums), upload_id = self._store.at(key), query["uploadId"]
        if method == "DELETE":
            client.abort_multipart_upload(**location, UploadId=upload_id)
            return _Answer(204)
        if method == "PUT":
            number = int(query["partNumber"])
            members = {"PartNumber": number, "Body": body, **sums}
            response = client.upload_part(**location, UploadId=upload_id, **members)
            kept = {name: value for name, value in response.items() if name == "ETag" or name.startswith("Checksum")}
            self._parts[upload_id, number] = {"PartNumber": number, **kept}
            return _Answer(200, headers={"ETag": response["ETag"]})
        parts = [self._parts.pop((upload_id, int(number))) for number in _PART.findall(body.decode())]
        response = client.complete_multipart_upload(**location, UploadId=upload_id, MultipartUpload={"Parts": parts})
        return _Answer(200, _xml("CompleteMultipartUploadResult", f"<ETag>{escape(response['ETag'])}</ETag>"))


_GUARDS = {"IfMatch": "if-match", "IfNoneMatch": "if-none-match"}
_SERVED: weakref.WeakValueDictionary[str, S3Gateway] = weakref.WeakValueDictionary()


@dataclass(frozen=True)
class _Answer:
    status: int
    body: bytes = b""
    headers: Mapping[str, str] | None = None


class _Conversation(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Log nothing, because the client of the store logs."""

    def handle_any(self) -> None:
        """Answer a request of a gateway's library."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        token = _TOKEN.search(self.headers.get("Authorization", ""))
        headers = {name.lower(): value for name, value in self.headers.items()}
        gateway = _SERVED.get(token[1]) if token else None
        answer = _Answer(403) if gateway is None else gateway.answer(self.command, self.path, headers, body)
        self.send_response_only(answer.status)
        for name, value in {"Content-Length": str(len(answer.body)), **(answer.headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any  # noqa: N815 - http.server's names


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Ignore connections that clients have closed."""


_PORTS: dict[int, int] = {}
_STARTING = threading.Lock()


def _port(process: int) -> int:
    """Return the port of this process's server, which starts with its first gateway."""
    with _STARTING:
        if process not in _PORTS:
            server = _Server(("127.0.0.1", 0), _Conversation)
            threading.Thread(target=server.serve_forever, name="ddbio-s3-gateway", daemon=True).start()
            _PORTS[process] = server.server_port
        return _PORTS[process]


def _action(method: str, query: Mapping[str, str], key: str) -> str:
    """Return the permission that a request needs."""
    if method in {"GET", "HEAD"}:
        return "s3:GetObject" if key else "s3:ListBucket"
    if method == "DELETE":
        return "s3:AbortMultipartUpload" if "uploadId" in query else "s3:DeleteObject"
    return "s3:DeleteObject" if "delete" in query else "s3:PutObject"


def _xml(name: str, inner: str) -> bytes:
    return f'<?xml version="1.0" encoding="UTF-8"?><{name}>{inner}</{name}>'.encode()
