"""An object store on S3: objects are written by multipart uploads, which a job completes when all of it is written.

botocore repeats failed requests (its standard mode); bodies that break off are continued here.
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
# With the part that is being filled, a sink holds at most 32 MiB.
PARTS_IN_FLIGHT = 3
# Several tasks of one process share a client, each with parts in flight.
_CONNECTIONS = 32
# https://docs.aws.amazon.com/AmazonS3/latest/API/API_DeleteObjects.html
_KEYS_PER_DELETE = 1000
_CHUNK_BYTES = 1024 * 1024
# How often in a row a body may break off without any progress.
_MAX_BREAKS = 5
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/access-points-naming.html: their ARNs have a slash.
_ACCESS_POINT = r"arn:[^:/]+:s3[\w-]*:[^:/]*:\d*:(?:outpost[:/][^:/]+[:/])?accesspoint[:/][^:/]+"
_LOCATION = re.compile(rf"s3://(?P<bucket>{_ACCESS_POINT}|[^/]+)(?:/(?P<prefix>.*))?", re.DOTALL)
_MD5 = re.compile(r"[0-9a-f]{32}")
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-keys.html
_MAX_KEY_BYTES = 1024


def split_location(location: str) -> tuple[str, str]:
    """Return bucket and prefix of ``s3://bucket/prefix``; the bucket may be an access point.

    Raises
    ------
    OptionError
        If it names no bucket.
    """
    found = _LOCATION.fullmatch(location)
    if found is None:
        raise OptionError(f"target {location!r} is not an S3 location: write s3://bucket/prefix")
    return found["bucket"], (found["prefix"] or "").strip("/")


class S3Store:
    """The objects under one S3 prefix. Picklable: each process makes its own client.

    Parameters
    ----------
    spec
        Recipe of the S3 client.
    target
        ``s3://bucket`` or ``s3://bucket/prefix``. The bucket may be an access point, by its alias or its ARN.

    Raises
    ------
    OptionError
        If the target names no bucket.
    TargetError
        By all methods, if a path is none within the prefix.
    """

    def __init__(self, spec: ClientSpec, target: str) -> None:
        self._spec = spec
        self._bucket, self._prefix = split_location(target)

    @property
    def uri(self) -> str:
        """The target without a slash at its end."""
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def above(self) -> tuple[S3Store, str] | None:
        """Return the prefix above, and the name of this one in it; None if this is a whole bucket."""
        if not self._prefix:
            return None
        prefix, _, name = self._prefix.rpartition("/")
        return S3Store(self._spec, f"s3://{self._bucket}/{prefix}"), name

    @property
    def hazard(self) -> str | None:
        """What would be deleted with the target that is more than the target, or None."""
        return None if self._prefix else "the whole bucket"

    @property
    def expected_owner(self) -> str | None:
        """The account that has to own the bucket, if one is named."""
        return dict(self._spec.members).get("ExpectedBucketOwner")

    def at(self, path: str) -> tuple[Any, dict[str, str], dict[str, str]]:
        """Return the client, the bucket and key of a path, and what uploads say of their checksums."""
        client = self._client
        return client, self._place(path), checksum_members(client, dict(self._spec.members).get("ChecksumAlgorithm"))

    def listing(self) -> tuple[Any, str, str]:
        """Return the client, the bucket and what all keys begin with."""
        return self._client, self._bucket, self._start

    def create(self, path: str) -> MultipartSink:
        """Return a sink over a new multipart upload."""
        with self._translated("s3:PutObject", path):
            return MultipartSink(*self.at(path), path)

    def stage_copy(self, source: object, entry: StoredObject, path: str, rows: int) -> StagedFile | None:
        """Stage a copy that S3 makes; None if the object is not on S3, or is empty.

        Raises
        ------
        NotFoundError
            If the object is gone or was replaced.

        References
        ----------
        https://docs.aws.amazon.com/AmazonS3/latest/API/API_UploadPartCopy.html
        """
        if not isinstance(source, S3Store) or not entry.size_bytes:
            return None
        place, origin = self._place(path), source._place(entry.path, is_listed=True)  # noqa: SLF001 - its own class
        guard: dict[str, Any] = {"CopySource": origin}
        given = {"CopySourceIfMatch": entry.version, "ExpectedSourceBucketOwner": source.expected_owner}
        guard |= {name: value for name, value in given.items() if value}
        with self._translated("s3:PutObject", path):
            upload_id = self._client.create_multipart_upload(**place)["UploadId"]
            try:
                parts = []
                for number, start in enumerate(range(0, entry.size_bytes, COPY_BYTES), 1):
                    part = {"PartNumber": number, "UploadId": upload_id, **guard}
                    last = min(start + COPY_BYTES, entry.size_bytes) - 1
                    part["CopySourceRange"] = f"bytes={start}-{last}"
                    copied = self._client.upload_part_copy(**place, **part)["CopyPartResult"]
                    parts.append({"PartNumber": number, "ETag": copied["ETag"]})
            except BaseException as error:
                abort_upload(self._client, place, upload_id)
                if isinstance(error, ClientError) and error_code(error) in {"NoSuchKey", "PreconditionFailed"}:
                    raise NotFoundError(f"{_uri(origin)} is gone or was replaced: run the job again") from error
                raise
        return StagedFile(path, entry.size_bytes, rows, {"upload_id": upload_id, "parts": parts})

    def complete(self, staged: StagedFile) -> None:
        """Complete the upload; succeed as well if an earlier call did.

        Raises
        ------
        NotFoundError
            If the upload is gone and no object of its parts is there.

        References
        ----------
        https://docs.aws.amazon.com/AmazonS3/latest/API/API_CompleteMultipartUpload.html
        """
        parts = {"Parts": staged.token.get("parts", [])}
        upload = {"UploadId": staged.token.get("upload_id", ""), "MultipartUpload": parts}
        with self._translated("s3:PutObject", staged.path):
            try:
                self._client.complete_multipart_upload(**self._place(staged.path), **upload)
            except (BotoCoreError, ClientError) as error:
                # The response may be lost, or an earlier attempt succeeded: the object shows it.
                if self._is_there(staged):
                    return
                if error_code(error) == "NoSuchUpload":
                    raise NotFoundError(
                        f"the upload of {_uri(self._place(staged.path))} is gone: run the job again"
                    ) from error
                raise

    def abort(self, job_id: str) -> None:
        """Abort every multipart upload of a job under the target; object names hold the job id."""
        for upload in [each for each in self._uploads() if job_of(each["Key"]) == job_id]:
            abort_upload(self._client, {"Bucket": self._bucket, "Key": upload["Key"]}, upload["UploadId"])

    def staged_jobs(self) -> set[str]:
        """Return the ids of the jobs that have uploads under the target."""
        return {job_of(upload["Key"]) for upload in self._uploads()} - {""}

    def _uploads(self) -> Iterator[dict[str, Any]]:
        pages = self._client.get_paginator("list_multipart_uploads")
        with self._translated("s3:ListBucketMultipartUploads", ""):
            for page in pages.paginate(Bucket=self._bucket, Prefix=self._start):
                yield from page.get("Uploads", [])

    def list(self, prefix: str = "") -> Iterator[StoredObject]:
        """Yield the objects whose path starts with ``prefix``, a page at a time, without folder markers."""
        start = self._start
        pages = self._client.get_paginator("list_objects_v2")
        with self._translated("s3:ListBucket", prefix):
            for page in pages.paginate(Bucket=self._bucket, Prefix=start + prefix):
                for entry in page.get("Contents", []):
                    # The console shows folders by empty objects of such names.
                    if not (entry["Key"].endswith("/") and not entry["Size"]):
                        path, written = entry["Key"].removeprefix(start), entry["LastModified"].timestamp()
                        yield StoredObject(path, entry["Size"], entry["ETag"], written)

    def read(self, path: str) -> bytes:
        """Return an object's bytes; a body that breaks off, or has another checksum than S3 says, is requested again.

        Raises
        ------
        NotFoundError
            If there is no such object.
        """
        with self._translated("s3:GetObject", path):
            return retrying(lambda: b"".join(self._chunks(path)), on=_is_other, attempts=_MAX_BREAKS, base_seconds=0)

    def read_chunks(self, path: str) -> Iterator[bytes]:
        """Yield an object's bytes in chunks of a megabyte; a body that breaks off is requested again from there.

        Raises
        ------
        NotFoundError
            If there is no such object.

        References
        ----------
        https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetObject.html
        """
        with self._translated("s3:GetObject", path):
            yield from self._chunks(path)

    def _chunks(self, path: str) -> Iterator[bytes]:
        place = self._place(path, is_listed=True)
        response = self._client.get_object(**place)
        done_bytes, size_bytes, breaks = 0, response["ContentLength"], 0
        while True:
            try:
                for chunk in _body(response):
                    done_bytes, breaks = done_bytes + len(chunk), 0
                    yield chunk
            except FlexibleChecksumError:
                # Of the whole object, whose bytes are given away.
                raise
            except BotoCoreError:
                breaks += 1
                if breaks > _MAX_BREAKS:
                    raise
            if done_bytes >= size_bytes:
                return
            # The same object, or none.
            rest = {"Range": f"bytes={done_bytes}-", "IfMatch": response["ETag"]}
            response = self._client.get_object(**place, **rest)

    def read_range(self, entry: StoredObject, start: int, length: int) -> bytes:
        """Return a range of an object's bytes, as it was when it was listed; a body that breaks off is requested again.

        Raises
        ------
        NotFoundError
            If there is no such object any more.
        """
        wanted = {**self._place(entry.path, is_listed=True), "Range": f"bytes={start}-{start + length - 1}"}
        if entry.version:
            wanted["IfMatch"] = entry.version

        def read() -> bytes:
            return b"".join(_body(self._client.get_object(**wanted), None))

        with self._translated("s3:GetObject", entry.path):
            return retrying(read, on=_is_broken, attempts=_MAX_BREAKS, base_seconds=0)

    def put(self, path: str, data: bytes) -> None:
        """Write a small object whole, over an older one if there is one."""
        with self._translated("s3:PutObject", path):
            self._client.put_object(**self._place(path), Body=data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Write a small object whole and return True, or return False if one is there.

        References
        ----------
        https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html
        """
        with self._translated("s3:PutObject", path):
            try:
                self._client.put_object(**self._place(path), Body=data, IfNoneMatch="*")
            except ClientError as error:
                # A conflict means that another writer was at work: it may have failed all the same.
                if error_code(error) == "ConditionalRequestConflict" and self._head(path) is None:
                    raise
                if error_code(error) not in {"PreconditionFailed", "ConditionalRequestConflict"}:
                    raise
                return False
        return True

    def delete(self, paths: Iterable[str]) -> None:
        """Delete objects; those that do not exist are ignored."""
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
        """What all keys begin with."""
        return f"{self._prefix}/" if self._prefix else ""

    def _key(self, path: str, *, is_listed: bool = False) -> str:
        """Return the key of a path: the one way in which keys of this store are made.

        Parameters
        ----------
        is_listed
            Whether the object may be one that another program made, with empty parts or parts ``.`` in its key.

        Raises
        ------
        TargetError
            If it is no key within the prefix, or too long for one.
        """
        key = f"{self._start}{contained(path, self.uri, is_key=is_listed)}"
        if len(key.encode("utf-8", "surrogateescape")) > _MAX_KEY_BYTES:
            raise outside(path, self.uri)
        return key

    def _place(self, path: str, *, is_listed: bool = False) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._key(path, is_listed=is_listed)}

    def _is_there(self, staged: StagedFile) -> bool:
        """Return whether the object is the one that the staged parts make."""
        found = self._head(staged.path)
        if found is None or found["ContentLength"] != staged.size_bytes:
            return False
        tags = [part["ETag"].strip('"') for part in staged.token.get("parts", [])]
        # A tag is the MD5 of the bytes only if S3 encrypts with its own keys.
        # https://docs.aws.amazon.com/AmazonS3/latest/API/API_Object.html
        if found.get("ServerSideEncryption", "AES256") != "AES256" or not all(map(_MD5.fullmatch, tags)):
            return True
        whole = hashlib.md5(bytes.fromhex("".join(tags)), usedforsecurity=False).hexdigest()
        return bool(found["ETag"].strip('"') == f"{whole}-{len(tags)}")

    def _head(self, path: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self._client.head_object(**self._place(path))
        except ClientError as error:
            if error_code(error) != "404":
                raise
            return None
        return found

    @contextlib.contextmanager
    def _translated(self, action: str, path: str) -> Iterator[None]:
        try:
            yield
        except (BotoCoreError, ClientError) as error:
            missing_bucket = error_code(error) == "NoSuchBucket"
            resource = f"bucket {self._bucket!r}" if missing_bucket else f"{self.uri}/{path}"
            raise to_ddbio_error(error, action=action, resource=resource) from error


class MultipartSink:
    """Upload one object's bytes in parts while they are written; a failed part raises at a later write or at the end.

    Parameters
    ----------
    client
        An S3 client, which retries what can be retried.
    place
        Bucket and key under which the object will appear.
    checksum
        What the upload and its parts say of their checksums; see ``checksum_members``.
    path
        The same place, relative to the target.

    Raises
    ------
    botocore.exceptions.ClientError, botocore.exceptions.BotoCoreError
        If no upload can be created.
    """

    def __init__(self, client: Any, place: dict[str, str], checksum: dict[str, str], path: str) -> None:
        self.closed = False
        self._client, self._place, self._path = client, place, path
        self._checksum, self._algorithm = checksum, checksum.get("ChecksumAlgorithm")
        self._buffer = bytearray()
        self._size_bytes = 0
        self._parts: list[dict[str, Any]] = []
        self._pending: deque[Future[dict[str, Any]]] = deque()
        # S3 keeps this one only of whole objects.
        kind = {"ChecksumType": "FULL_OBJECT"} if self._algorithm == "CRC64NVME" else {}
        self._upload_id = client.create_multipart_upload(**place, **self._checksum, **kind)["UploadId"]
        self._pool = ThreadPoolExecutor(PARTS_IN_FLIGHT, thread_name_prefix="ddbio-upload")

    def write(self, data: Buffer, /) -> int:
        """Take all of the bytes; return their number."""
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
        """Return what completes the object, when all parts are uploaded."""
        # S3 completes no upload without a part: an empty object has an empty one.
        if self._buffer or not self._size_bytes:
            self._send()
        while self._pending:
            self._parts.append(self._pending.popleft().result())
        self._stop()
        return StagedFile(self._path, self._size_bytes, rows, {"upload_id": self._upload_id, "parts": self._parts})

    def abort(self) -> None:
        """Abort the upload; later writes are discarded."""
        self._stop()
        abort_upload(self._client, self._place, self._upload_id)

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
        request = {**self._place, "UploadId": self._upload_id, "PartNumber": number, "Body": body, **self._checksum}
        if self._algorithm == "CRC32":
            # In a quarter of botocore's time.
            request["ChecksumCRC32"] = b64encode(isal_zlib.crc32(body).to_bytes(4, "big")).decode()
        try:
            response = self._client.upload_part(**request)
        except (BotoCoreError, ClientError) as error:
            raise to_ddbio_error(error, action="s3:PutObject", resource=_uri(self._place)) from error
        part = {"PartNumber": number, "ETag": response["ETag"]}
        name = f"Checksum{self._algorithm}"
        return part | ({name: response[name]} if name in response else {})


def checksum_members(client: Any, algorithm: str | None) -> dict[str, str]:
    """Return what an upload and its parts say of their checksums: CRC32 if none is given."""
    # A checksum of each part, repeated at completion, verifies the object end to end. Some S3-compatible stores
    # support none; botocore has this setting for them.
    # https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity-upload.html
    wanted = client.meta.config.request_checksum_calculation == "when_supported"
    algorithm = algorithm or ("CRC32" if wanted else None)
    return {"ChecksumAlgorithm": algorithm} if algorithm else {}


def abort_upload(client: Any, place: dict[str, str], upload_id: str) -> None:
    """Abort a multipart upload; ignore one that is gone."""
    try:
        client.abort_multipart_upload(**place, UploadId=upload_id)
    except (BotoCoreError, ClientError) as error:
        if error_code(error) != "NoSuchUpload":
            raise to_ddbio_error(error, action="s3:AbortMultipartUpload", resource=_uri(place)) from error


def _body(response: dict[str, Any], chunk_bytes: int | None = _CHUNK_BYTES) -> Iterator[bytes]:
    """Yield the body of a response in chunks, or whole; whatever breaks it off is an error of botocore."""
    with contextlib.closing(response["Body"]) as body:
        try:
            yield from body.iter_chunks(chunk_bytes) if chunk_bytes else (body.read(),)
        except (HTTPError, OSError, IncompleteReadError) as error:
            # Botocore has errors of its own for some of them.
            raise ResponseStreamingError(error=error) from error


def _is_other(error: Exception) -> bool:
    """Return whether an object was replaced while it was read, or came with another checksum."""
    return isinstance(error, FlexibleChecksumError) or error_code(error) == "PreconditionFailed"


def _is_broken(error: Exception) -> bool:
    """Return whether a connection or a body broke off; botocore itself repeats what S3 responds to with an error."""
    return isinstance(error, BotoCoreError)


def _uri(place: dict[str, str]) -> str:
    return f"s3://{place['Bucket']}/{place['Key']}"
