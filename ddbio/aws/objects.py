"""Keep S3 objects that appear whole or not at all; leave retries to the client (botocore's standard mode)."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import re
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from ddbio.aws.failure import error_code, to_ddbio_error
from ddbio.aws.multipart import MultipartSink, abort_upload
from ddbio.core.staged import StoredObject, job_of
from ddbio.errors import NotFoundError, OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ddbio.aws.client import ClientSpec
    from ddbio.core.staged import StagedFile

# Several tasks of one process share a client, each with parts in flight.
_CONNECTIONS = 32
# https://docs.aws.amazon.com/AmazonS3/latest/API/API_DeleteObjects.html
_KEYS_PER_DELETE = 1000
_CHUNK_BYTES = 1024 * 1024
# Times in a row that a body may break off without a byte more.
_MAX_BREAKS = 5
_MD5 = re.compile(r"[0-9a-f]{32}")


class S3Store:
    """Satisfy an object store under one S3 prefix; picklable, since it holds no client.

    Parameters
    ----------
    spec
        Recipe of the S3 client.
    target
        ``s3://bucket`` or ``s3://bucket/prefix``.

    Raises
    ------
    OptionError
        If the target names no bucket.
    """

    def __init__(self, spec: ClientSpec, target: str) -> None:
        scheme, _, rest = target.partition("://")
        bucket, _, prefix = rest.partition("/")
        if scheme != "s3" or not bucket:
            raise OptionError(f"target {target!r} is not an S3 location: write s3://bucket/prefix")
        self._spec, self._bucket, self._prefix = spec, bucket, prefix.strip("/")

    @property
    def uri(self) -> str:
        """The target without a slash at its end."""
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    @property
    def hazard(self) -> str | None:
        """What else would go if the whole target were deleted."""
        return None if self._prefix else "the whole bucket"

    def create(self, path: str) -> MultipartSink:
        """Return a sink over a new multipart upload."""
        with self._told("s3:PutObject", path):
            return MultipartSink(self._client, self._place(path), path)

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
        upload = {"UploadId": staged.token["upload_id"], "MultipartUpload": {"Parts": staged.token["parts"]}}
        with self._told("s3:PutObject", staged.path):
            try:
                self._client.complete_multipart_upload(**self._place(staged.path), **upload)
            except (BotoCoreError, ClientError) as error:
                # The answer may be lost, or an earlier try was heard: the object tells.
                if self._is_there(staged):
                    return
                if error_code(error) == "NoSuchUpload":
                    raise NotFoundError(
                        f"the upload of {self._name(staged.path)} is gone: run the job again"
                    ) from error
                raise

    def abort(self, job_id: str) -> None:
        """Abort every multipart upload under the target whose object is named for the job."""
        for upload in [each for each in self._uploads() if job_of(each["Key"]) == job_id]:
            abort_upload(self._client, {"Bucket": self._bucket, "Key": upload["Key"]}, upload["UploadId"])

    def staged_jobs(self) -> set[str]:
        """Return the ids of the jobs that have uploads under the target."""
        return {job_of(upload["Key"]) for upload in self._uploads()} - {""}

    def _uploads(self) -> Iterator[dict[str, Any]]:
        pages = self._client.get_paginator("list_multipart_uploads")
        with self._told("s3:ListBucketMultipartUploads", ""):
            for page in pages.paginate(Bucket=self._bucket, Prefix=self._key("")):
                yield from page.get("Uploads", [])

    def list(self, prefix: str = "") -> Iterator[StoredObject]:
        """Yield the objects whose path starts with ``prefix``, a page at a time; passes over folder markers."""
        start = self._key("")
        pages = self._client.get_paginator("list_objects_v2")
        with self._told("s3:ListBucket", prefix):
            for page in pages.paginate(Bucket=self._bucket, Prefix=start + prefix):
                for entry in page.get("Contents", []):
                    # The console shows folders by empty objects of such names.
                    if not (entry["Key"].endswith("/") and not entry["Size"]):
                        path, written = entry["Key"].removeprefix(start), entry["LastModified"].timestamp()
                        yield StoredObject(path, entry["Size"], entry["ETag"], written)

    def read(self, path: str) -> bytes:
        """Return an object's bytes.

        Raises
        ------
        NotFoundError
            If there is no such object.
        """
        with self._told("s3:GetObject", path):
            data: bytes = self._client.get_object(**self._place(path))["Body"].read()
        return data

    def read_chunks(self, path: str) -> Iterator[bytes]:
        """Yield an object's bytes in pieces of a megabyte; a body that breaks off is asked for again from there.

        Raises
        ------
        NotFoundError
            If there is no such object.

        References
        ----------
        https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetObject.html
        """
        with self._told("s3:GetObject", path):
            answer = self._client.get_object(**self._place(path))
            done_bytes, size_bytes, breaks = 0, answer["ContentLength"], 0
            while True:
                try:
                    for chunk in answer["Body"].iter_chunks(_CHUNK_BYTES):
                        done_bytes, breaks = done_bytes + len(chunk), 0
                        yield chunk
                except BotoCoreError:
                    breaks += 1
                    if breaks > _MAX_BREAKS:
                        raise
                finally:
                    answer["Body"].close()
                if done_bytes >= size_bytes:
                    return
                # The same object, or none.
                rest = {"Range": f"bytes={done_bytes}-", "IfMatch": answer["ETag"]}
                answer = self._client.get_object(**self._place(path), **rest)

    def read_range(self, entry: StoredObject, start: int, length: int) -> bytes:
        """Return a range of an object's bytes, as it was when it was listed; a body that breaks off is asked for again.

        Raises
        ------
        NotFoundError
            If there is no such object any more.
        """
        wanted = {"Range": f"bytes={start}-{start + length - 1}"}
        if entry.version:
            wanted["IfMatch"] = entry.version
        with self._told("s3:GetObject", entry.path):
            for attempt in range(_MAX_BREAKS):
                try:
                    data: bytes = self._client.get_object(**self._place(entry.path), **wanted)["Body"].read()
                except BotoCoreError:
                    if attempt + 1 == _MAX_BREAKS:
                        raise
                else:
                    return data
        raise AssertionError("unreachable: the last attempt returns or raises")

    def put(self, path: str, data: bytes) -> None:
        """Write a small object whole, over an older one if there is one."""
        with self._told("s3:PutObject", path):
            self._client.put_object(**self._place(path), Body=data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Write a small object whole and return True, or return False if one is there.

        References
        ----------
        https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html
        """
        with self._told("s3:PutObject", path):
            try:
                self._client.put_object(**self._place(path), Body=data, IfNoneMatch="*")
            except ClientError as error:
                # A conflict means that another writer was at it: it may have failed all the same.
                if error_code(error) == "ConditionalRequestConflict" and self._head(path) is None:
                    raise
                if error_code(error) not in {"PreconditionFailed", "ConditionalRequestConflict"}:
                    raise
                return False
        return True

    def delete(self, paths: Iterable[str]) -> None:
        """Delete objects; those that are not there are passed over."""
        keys = iter([{"Key": self._key(path)} for path in paths])
        while some := list(itertools.islice(keys, _KEYS_PER_DELETE)):
            with self._told("s3:DeleteObject", ""):
                answer = self._client.delete_objects(Bucket=self._bucket, Delete={"Objects": some, "Quiet": True})
                for refusal in answer.get("Errors", []):
                    raise ClientError({"Error": refusal}, "DeleteObjects")

    @property
    def _client(self) -> Any:
        return self._spec.client("s3", max_pool_connections=_CONNECTIONS)

    def _key(self, path: str) -> str:
        return f"{self._prefix}/{path}" if self._prefix else path

    def _place(self, path: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._key(path)}

    def _name(self, path: str) -> str:
        return f"s3://{self._bucket}/{self._key(path)}"

    def _is_there(self, staged: StagedFile) -> bool:
        """Return whether the object is the one that the staged parts make."""
        found = self._head(staged.path)
        if found is None or found["ContentLength"] != staged.size_bytes:
            return False
        tags = [part["ETag"].strip('"') for part in staged.token["parts"]]
        # Only where S3 encrypts with its own keys is a tag the MD5 of its bytes.
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
    def _told(self, action: str, path: str) -> Iterator[None]:
        try:
            yield
        except (BotoCoreError, ClientError) as error:
            missing_bucket = error_code(error) == "NoSuchBucket"
            resource = f"bucket {self._bucket!r}" if missing_bucket else self._name(path)
            raise to_ddbio_error(error, action=action, resource=resource) from error
