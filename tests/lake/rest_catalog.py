"""A catalog with the table calls of the Iceberg REST protocol, stored in an SQL catalog."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from pyiceberg.catalog.rest import RegisterTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import CommitTableRequest

_REFUSALS = {
    NoSuchNamespaceError: (404, "NoSuchNamespaceException"),
    NoSuchTableError: (404, "NoSuchTableException"),
    NamespaceAlreadyExistsError: (409, "AlreadyExistsException"),
    TableAlreadyExistsError: (409, "AlreadyExistsException"),
    CommitFailedException: (409, "CommitFailedException"),
}


class RestCatalog:
    """Catalog that is served on a local port while the context is open.

    Attributes
    ----------
    calls
        Methods and paths, in their order.
    """

    def __init__(self, folder):
        self.catalog = SqlCatalog("kept", uri=f"sqlite:///{folder}/catalog.db", warehouse=str(folder))
        self.calls = []

    def __enter__(self):
        """Serve."""
        served = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self):
                size = int(self.headers.get("Content-Length") or 0)
                status, content = served.respond(self.command, self.path.partition("?")[0], self.rfile.read(size))
                data = b"" if content is None or self.command == "HEAD" else json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_HEAD = answer  # noqa: N815 - http.server's names

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.uri = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        return self

    def __exit__(self, *_):
        """Stop."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self.catalog.close()

    def respond(self, method, path, body):
        """Return the status and the content of a response."""
        self.calls.append((method, path))
        try:
            return self._respond(method, path.removeprefix("/v1/").split("/"), body)
        except tuple(_REFUSALS) as error:
            status, kind = _REFUSALS[type(error)]
            return status, {"error": {"message": str(error), "type": kind, "code": status}}

    def _respond(self, method, parts, body):  # noqa: PLR0911 - one return for each call
        match method, *parts:
            case "GET", "config":
                return 200, {"defaults": {}, "overrides": {}}
            case "POST", "namespaces":
                request = json.loads(body)
                self.catalog.create_namespace(tuple(request["namespace"]))
                return 200, {"namespace": request["namespace"], "properties": {}}
            case "GET" | "HEAD", "namespaces", namespace:
                return 200, {"namespace": [namespace], "properties": self.catalog.load_namespace_properties(namespace)}
            case "POST", "namespaces", namespace, "register":
                request = RegisterTableRequest.model_validate_json(body)
                table = self.catalog.register_table((namespace, request.name), request.metadata_location)
                return 200, described(table.metadata, table.metadata_location)
            case "GET", "namespaces", namespace, "tables", name:
                table = self.catalog.load_table((namespace, name))
                return 200, described(table.metadata, table.metadata_location)
            case "POST", "namespaces", namespace, "tables", name:
                request = CommitTableRequest.model_validate_json(body)
                table = self.catalog.load_table((namespace, name))
                done = self.catalog.commit_table(table, request.requirements, request.updates)
                return 200, described(done.metadata, done.metadata_location)
        return 404, {"error": {"message": "/".join(parts), "type": "NotFoundException", "code": 404}}


def described(metadata, location):
    """Return a table in the format of responses."""
    return {
        "metadata-location": location,
        "metadata": json.loads(metadata.model_dump_json(by_alias=True, exclude_none=True)),
        "config": {},
    }
