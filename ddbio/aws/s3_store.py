"""Object store on S3. Objects are written by multipart uploads, which a job completes after its last write.

botocore retries failed requests (standard mode). This module resumes interrupted bodies.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import re
from base64 import b64encode
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    FlexibleChecksumError,
    IncompleteReadError,
    ResponseStreamingError,
)
from isal import isal_zlib
from urllib3.exceptions import HTTPError

from ddbio.aws.error_codes import error_code, to_ddbio_error
from ddbio.errors import NotFoundError, OptionError
from ddbio.retrying import retrying
from ddbio.storage.staged import StagedFile, StoredObject, contained, job_of, outside

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from typing_extensions import Buffer

    from ddbio.aws.client import ClientSpec

# 10,000 parts of 5 MiB to 5 GiB: parts of 8 MiB reach 78 GiB a file.
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html
PART_BYTES = 8 * 1024 * 1024
# At most 5 GiB; smaller parts can be repeated sooner.
COPY_BYTES = 1024**3
# Including the part that is being filled, a sink uses at most 32 MiB.
PARTS_IN_FLIGHT = 3
# Several tasks of a process share a client, each with parts in flight.
_CONNECTIONS = 32
# https://docs.aws.amazon.com/AmazonS3/latest/API/API_DeleteObjects.html
_KEYS_PER_DELETE = 1000
_CHUNK_BYTES = 1024 * 1024
# Maximum number of consecutive interruptions of a body without progress.
_MAX_BREAKS = 5
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/access-points-naming.html: their ARNs have a slash.
_ACCESS_POINT = r"arn:[^:/]+:s3[\w-]*:[^:/]*:\d*:(?:outpost[:/][^:/]+[:/])?accesspoint[:/][^:/]+"
_LOCATION = re.compile(rf"s3://(?P<bucket>{_ACCESS_POINT}|[^/]+)(?:/(?P<prefix>.*))?", re.DOTALL)
_MD5 = re.compile(r"[0-9a-f]{32}")
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-keys.html
_MAX_KEY_BYTES = 1024


def split_location(location: str) -> tuple[str, str]:
    """Return bucket and prefix of ``s3://bucket/prefix``. The bucket may be an access point.

    Raises
    ------
    OptionError
        If there is no bucket name.
    """
    match = _LOCATION.fullmatch(location)
    if match is None:
        raise OptionError(f"target {location!r} is not an S3 location: write s3://bucket/prefix")
    return match["bucket"], (match["prefix"] or "").strip("/")


class S3Store:
    """Objects under an S3 prefix. Picklable: each process creates its own client.

    Parameters
    ----------
    spec
        Description of the S3 client.
    target
        ``s3://bucket`` or ``s3://bucket/prefix``. The bucket may be the alias or the ARN of an access point.

    Raises
    ------
    OptionError
        If the target has no bucket name.
    TargetError
        Raised by all methods if a path is outside the prefix.
    """

    def __init__(self, spec: ClientSpec, target: str) -> None:
        self._spec = spec
        self._bucket, self._prefix = split_location(target)

    @property
    def uri(self) -> str:
        """The target without a trailing slash."""
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def above(self) -> tuple[S3Store, str] | None:
        """Return the parent prefix, and the name of this one in it; None if this is an entire bucket."""
        if not self._prefix:
            return None
        prefix, _, name = self._prefix.rpartition("/")
        return S3Store(self._spec, f"s3://{self._bucket}/{prefix}"), name

    @property
    def hazard(self) -> str | None:
        """Description of the objects that would be deleted in addition to the target, or None."""
        return None if self._prefix else "the whole bucket"

    @property
    def expected_owner(self) -> str | None:
        """The account that must own the bucket, or None."""
        return dict(self._spec.members).get("ExpectedBucketOwner")

    def at(self, path: str) -> tuple[Any, dict[str, str], dict[str, str]]:
        """Return the client, the bucket and key of a path, and the checksum members of uploads."""
        client = self._client
        return client, self._location(path), checksum_members(client, dict(self._spec.members).get("ChecksumAlgorithm"))

    def listing(self) -> tuple[Any, str, str]:
        """Return the client, the bucket and the common prefix of all keys."""
        return self._client, self._bucket, self._start

    def create(self, path: str) -> MultipartSink:
        """Return a sink for a new multipart upload."""
        with self._translated("s3:PutObject", path):
            return MultipartSink(*self.at(path), path)

    def stage_copy(self, source: object, entry: StoredObject, path: str, rows: int) -> StagedFile | None:
        """Stage a server-side copy in S3. Return None if the source is not on S3, or is empty.

        Raises
        ------
        NotFoundError
            If the source object was deleted or replaced.

        References
        ----------
        https://docs.aws.amazon.com/AmazonS3/latest/API/API_UploadPartCopy.html
        """
        if not isinstance(source, S3Store) or not entry.size_bytes:
            return None
        location, origin = self._location(path), source._location(entry.path, is_listed=True)  # noqa: SLF001 - its own class
        guard: dict[str, Any] = {"CopySource": origin}
        members = {"CopySourceIfMatch": entry.version, "ExpectedSourceBucketOwner": source.expected_owner}
        guard |= {name: value for name, value in members.items() if value}
        with self._translated("s3:PutObject", path):
            upload_id = self._client.create_multipart_upload(**location)["UploadId"]
            try:
                parts = []
                for number, start in enumerate(range(0, entry.size_bytes, COPY_BYTES), 1):
                    part = {"PartNumber": number, "UploadId": upload_id, **guard}
                    last = min(start + COPY_BYTES, entry.size_bytes) - 1
                    part["CopySourceRange"] = f"bytes={start}-{last}"
                    copied = self._client.upload_part_copy(**location, **part)["CopyPartResult"]
                    parts.append({"PartNumber": number, "ETag": copied["ETag"]})
            except BaseException as error:
                abort_upload(self._client, location, upload_id)
                if isinstance(error, ClientError) and error_code(error) in {"NoSuchKey", "PreconditionFailed"}:
                    raise NotFoundError(f"{_uri(origin)} is gone or was replaced: run the job again") from error
                raise
        return StagedFile(path, entry.size_bytes, rows, {"upload_id": upload_id, "parts": parts})

    def complete(self, staged: StagedFile) -> None:
        """Complete an upload. An upload that an earlier call completed is no error.

        Raises
        ------
        NotFoundError
            If the upload does not exist, nor an object of its parts.

        References
        ----------
        https://docs.aws.amazon.com/AmazonS3/latest/API/API_CompleteMultipartUpload.html
        """
        parts = {"Parts": staged.token.get("parts", [])}
        upload = {"UploadId": staged.token.get("upload_id", ""), "MultipartUpload": parts}
        with self._translated("s3:PutObject", staged.path):
            try:
                self._client.complete_multipart_upload(**self._location(staged.path), **upload)
            except (BotoCoreError, ClientError) as error:
                # The response may be lost, or an earlier attempt succeeded: check the object.
                if self._is_complete(staged):
                    return
                if error_code(error) == "NoSuchUpload":
                    raise NotFoundError(
                        f"the upload of {_uri(self._location(staged.path))} is gone: run the job again"
                    ) from error
                raise

    def abort(self, job_id: str) -> None:
        """Abort all multipart uploads of a job under the target. Object names contain the job id."""
        for upload in [upload for upload in self._uploads() if job_of(upload["Key"]) == job_id]:
            abort_upload(self._client, {"Bucket": self._bucket, "Key": upload["Key"]}, upload["UploadId"])

    def staged_jobs(self) -> set[str]:
        """Return the ids of the jobs with uploads under the target."""
        return {job_of(upload["Key"]) for upload in self._uploads()} - {""}

    def _uploads(self) -> Iterator[dict[str, Any]]:
        pages = self._client.get_paginator("list_multipart_uploads")
        with self._translated("s3:ListBucketMultipartUploads", ""):
            for page in pages.paginate(Bucket=self._bucket, Prefix=self._start):
                yield from page.get("Uploads", [])

    def list(self, prefix: str = "") -> Iterator[StoredObject]:
        """Yield the objects whose path starts with ``prefix``, page by page, without folder markers."""
        start = self._start
        pages = self._client.get_paginator("list_objects_v2")
        with self._translated("s3:ListBucket", prefix):
            for page in pages.paginate(Bucket=self._bucket, Prefix=start + prefix):
                for entry in page.get("Contents", []):
                    # The console represents folders as empty objects with such names.
                    if not (entry["Key"].endswith("/") and not entry["Size"]):
                        path, written = entry["Key"].removeprefix(start), entry["LastModified"].timestamp()
                        yield StoredObject(path, entry["Size"], entry["ETag"], written)

    def read(self, path: str) -> bytes:
        """Return an object's bytes. An interrupted body, or one with a wrong checksum, is requested again.

        Raises
        ------
        NotFoundError
            If the object does not exist.
        """
        with self._translated("s3:GetObject", path):
            return retrying(lambda: b"".join(self._chunks(path)), on=_is_other, attempts=_MAX_BREAKS, base_seconds=0)

    def read_chunks(self, path: str) -> Iterator[bytes]:
        """Yield an object's bytes in chunks of 1 MiB. An interrupted body is resumed at its offset.

        Raises
        ------
        NotFoundError
            If the object does not exist.

        References
        ----------
        https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetObject.html
        """
        with self._translated("s3:GetObject", path):
            yield from self._chunks(path)

    def _chunks(self, path: str) -> Iterator[bytes]:
        location = self._location(path, is_listed=True)
        response = self._client.get_object(**location)
        done_bytes, size_bytes, breaks = 0, response["ContentLength"], 0
        while True:
            try:
                for chunk in _body(response):
                    done_bytes, breaks = done_bytes + len(chunk), 0
                    yield chunk
            except FlexibleChecksumError:
                # The checksum covers the entire object, whose bytes were already yielded.
                raise
            except BotoCoreError:
                breaks += 1
                if breaks > _MAX_BREAKS:
                    raise
            if done_bytes >= size_bytes:
                return
            # The same version of the object, or an error.
            remaining = {"Range": f"bytes={done_bytes}-", "IfMatch": response["ETag"]}
            response = self._client.get_object(**location, **remaining)

    def read_range(self, entry: StoredObject, start: int, length: int) -> bytes:
        """Return a range of an object's bytes in its listed version. An interrupted body is requested again.

        Raises
        ------
        NotFoundError
            If the object no longer exists.
        """
        wanted = {**self._location(entry.path, is_listed=True), "Range": f"bytes={start}-{start + length - 1}"}
        if entry.version:
            wanted["IfMatch"] = entry.version

        def read() -> bytes:
            return b"".join(_body(self._client.get_object(**wanted), None))

        with self._translated("s3:GetObject", entry.path):
            return retrying(read, on=_is_broken, attempts=_MAX_BREAKS, base_seconds=0)

    def put(self, path: str, data: bytes) -> None:
        """Write a small object with one request, replacing an existing one."""
        with self._translated("s3:PutObject", path):
            self._client.put_object(**self._location(path), Body=data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Write a small object with one request and return True, or return False if it exists.

        References
        ----------
        https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html
        """
        with self._translated("s3:PutObject", path):
            try:
                self._client.put_object(**self._location(path), Body=data, IfNoneMatch="*")
            except ClientError as error:
                # A conflict means that another writer was active, which may have failed.
                if error_code(error) == "ConditionalRequestConflict" and self._head(path) is None:
                    raise
                if error_code(error) not in {"PreconditionFailed", "ConditionalRequestConflict"}:
                    raise
                return False
        return True

    def delete(self, paths: Iterable[str]) -> None:
        """Delete objects. Missing ones are ignored."""
        keys = iter([{"Key": self._key(path, is_listed=True)} for path in paths])
        while some := list(itertools.islice(keys, _KEYS_PER_DELETE)):
            with self._translated("s3:DeleteObject", ""):
                response = self._client.delete_objects(Bucket=self._bucket, Delete={"Objects": some, "Quiet": True})
                for refusal in response.get("Errors", []):
                    raise ClientError({"Error": refusal}, "DeleteObjects")

    @property
    def _client(self) -> Any:
        return self._spec.client("s3", max_pool_connections=_CONNECTIONS)

    @property
    def _start(self) -> str:
        """Common prefix of all keys."""
        return f"{self._prefix}/" if self._prefix else ""

    def _key(self, path: str, *, is_listed: bool = False) -> str:
        """Return the key of a path. All keys of this store are created here.

        Parameters
        ----------
        is_listed
            Whether the object may come from another program, with empty segments or segments ``.`` in its key.

        Raises
        ------
        TargetError
            If it is no key within the prefix, or too long.
        """
        key = f"{self._start}{contained(path, self.uri, is_key=is_listed)}"
        if len(key.encode("utf-8", "surrogateescape")) > _MAX_KEY_BYTES:
            raise outside(path, self.uri)
        return key

    def _location(self, path: str, *, is_listed: bool = False) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._key(path, is_listed=is_listed)}

    def _is_complete(self, staged: StagedFile) -> bool:
        """Return whether the object consists of the staged parts."""
        head = self._head(staged.path)
        if head is None or head["ContentLength"] != staged.size_bytes:
            return False
        tags = [part["ETag"].strip('"') for part in staged.token.get("parts", [])]
        # An ETag is the MD5 of the bytes only if S3 encrypts with its own keys.
        # https://docs.aws.amazon.com/AmazonS3/latest/API/API_Object.html
        if head.get("ServerSideEncryption", "AES256") != "AES256" or not all(map(_MD5.fullmatch, tags)):
            return True
        digest = hashlib.md5(bytes.fromhex("".join(tags)), usedforsecurity=False).hexdigest()
        return bool(head["ETag"].strip('"') == f"{digest}-{len(tags)}")

    def _head(self, path: str) -> dict[str, Any] | None:
        try:
            response: dict[str, Any] = self._client.head_object(**self._location(path))
        except ClientError as error:
            if error_code(error) != "404":
                raise
            return None
        return response

    @contextlib.contextmanager
    def _translated(self, action: str, path: str) -> Iterator[None]:
        try:
            yield
        except (BotoCoreError, ClientError) as error:
            missing_bucket = error_code(error) == "NoSuchBucket"
            resource = f"bucket {self._bucket!r}" if missing_bucket else f"{self.uri}/{path}"
            raise to_ddbio_error(error, action=action, resource=resource) from error


class MultipartSink:
    """Multipart upload of an object while it is written. A failed part raises at a later write or at the end.

    Parameters
    ----------
    client
        An S3 client with retries.
    location
        Bucket and key of the object.
    checksum
        Checksum members of the upload and its parts; see ``checksum_members``.
    path
        Path of the object, relative to the target.

    Raises
    ------
    botocore.exceptions.ClientError, botocore.exceptions.BotoCoreError
        If no upload can be created.
    """

    def __init__(self, client: Any, location: dict[str, str], checksum: dict[str, str], path: str) -> None:
        self.closed = False
        self._client, self._location, self._path = client, location, path
        self._checksum, self._algorithm = checksum, checksum.get("ChecksumAlgorithm")
        self._buffer = bytearray()
        self._size_bytes = 0
        self._parts: list[dict[str, Any]] = []
        self._pending: deque[Future[dict[str, Any]]] = deque()
        # S3 stores this checksum only for entire objects.
        kind = {"ChecksumType": "FULL_OBJECT"} if self._algorithm == "CRC64NVME" else {}
        self._upload_id = client.create_multipart_upload(**location, **self._checksum, **kind)["UploadId"]
        self._pool = ThreadPoolExecutor(PARTS_IN_FLIGHT, thread_name_prefix="ddbio-upload")

    def write(self, data: Buffer, /) -> int:
        """Write all bytes and return their number."""
        view = memoryview(data).cast("B")
        if self.closed:
            return view.nbytes
        taken = 0
        while taken < view.nbytes:
            piece = view[taken : taken + PART_BYTES - len(self._buffer)]
            self._buffer += piece
            taken += piece.nbytes
            if len(self._buffer) == PART_BYTES:
                self._send()
        self._size_bytes += taken
        return taken

    def finish(self, rows: int) -> StagedFile:
        """Return the staged file after all parts are uploaded."""
        # S3 completes no upload without parts: an empty object has an empty part.
        if self._buffer or not self._size_bytes:
            self._send()
        while self._pending:
            self._parts.append(self._pending.popleft().result())
        self._stop()
        return StagedFile(self._path, self._size_bytes, rows, {"upload_id": self._upload_id, "parts": self._parts})

    def abort(self) -> None:
        """Abort the upload. Later writes are discarded."""
        self._stop()
        abort_upload(self._client, self._location, self._upload_id)

    def _stop(self) -> None:
        self.closed = True
        self._pool.shutdown(cancel_futures=True)

    def _send(self) -> None:
        if len(self._pending) == PARTS_IN_FLIGHT:
            self._parts.append(self._pending.popleft().result())
        number = len(self._parts) + len(self._pending) + 1
        self._pending.append(self._pool.submit(self._upload, number, bytes(self._buffer)))
        self._buffer = bytearray()

    def _upload(self, number: int, body: bytes) -> dict[str, Any]:
        request = {**self._location, "UploadId": self._upload_id, "PartNumber": number, "Body": body, **self._checksum}
        if self._algorithm == "CRC32":
            # A quarter of botocore's time.
            request["ChecksumCRC32"] = b64encode(isal_zlib.crc32(body).to_bytes(4, "big")).decode()
        try:
            response = self._client.upload_part(**request)
        except (BotoCoreError, ClientError) as error:
            raise to_ddbio_error(error, action="s3:PutObject", resource=_uri(self._location)) from error
        part = {"PartNumber": number, "ETag": response["ETag"]}
        name = f"Checksum{self._algorithm}"
        return part | ({name: response[name]} if name in response else {})


def checksum_members(client: Any, algorithm: str | None) -> dict[str, str]:
    """Return the checksum members of an upload and its parts: CRC32 by default."""
    # A checksum of each part, repeated at completion, verifies the object end to end. Some S3-compatible stores do not
    # support checksums. botocore has this setting for them.
    # https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity-upload.html
    wanted = client.meta.config.request_checksum_calculation == "when_supported"
    algorithm = algorithm or ("CRC32" if wanted else None)
    return {"ChecksumAlgorithm": algorithm} if algorithm else {}


def abort_upload(client: Any, location: dict[str, str], upload_id: str) -> None:
    """Abort a multipart upload. Ignore one that no longer exists."""
    try:
        client.abort_multipart_upload(**location, UploadId=upload_id)
    except (BotoCoreError, ClientError) as error:
        if error_code(error) != "NoSuchUpload":
            raise to_ddbio_error(error, action="s3:AbortMultipartUpload", resource=_uri(location)) from error


def _body(response: dict[str, Any], chunk_bytes: int | None = _CHUNK_BYTES) -> Iterator[bytes]:
    """Yield the body of a response in chunks, or entirely. Any interruption is raised as an error of botocore."""
    with contextlib.closing(response["Body"]) as body:
        try:
            yield from body.iter_chunks(chunk_bytes) if chunk_bytes else (body.read(),)
        except (HTTPError, OSError, IncompleteReadError) as error:
            # botocore has specific errors for some of them.
            raise ResponseStreamingError(error=error) from error


def _is_other(error: Exception) -> bool:
    """Return whether an object was replaced during the read, or has a wrong checksum."""
    return isinstance(error, FlexibleChecksumError) or error_code(error) == "PreconditionFailed"


def _is_broken(error: Exception) -> bool:
    """Return whether a connection or body was interrupted. botocore itself retries error responses of S3."""
    return isinstance(error, BotoCoreError)


def _uri(location: dict[str, str]) -> str:
    return f"s3://{location['Bucket']}/{location['Key']}"
