"""Upload the bytes of one S3 object in parts while they come; never complete the upload."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from ddbio.aws.failure import error_code, to_ddbio_error
from ddbio.core.staged import StagedFile

if TYPE_CHECKING:
    from typing_extensions import Buffer

# 10,000 parts of 5 MiB to 5 GiB: parts of 8 MiB reach 78 GiB a file.
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html
PART_BYTES = 8 * 1024 * 1024
# With the part being filled a sink holds at most 32 MiB.
PARTS_IN_FLIGHT = 3


class MultipartSink:
    """Upload one object's bytes; raise a failed part's error at the next write or at the end.

    Parameters
    ----------
    client
        An S3 client, which retries what can be retried.
    place
        Bucket and key under which the object will appear.
    path
        The same place, relative to the target.

    Raises
    ------
    botocore.exceptions.ClientError, botocore.exceptions.BotoCoreError
        If no upload can be begun; the store that asked for one says why.
    """

    def __init__(self, client: Any, place: dict[str, str], path: str) -> None:
        self.closed = False
        self._client, self._place, self._path = client, place, path
        # A checksum per part, stated again at completion, proves the object end to end; some S3 look-alikes know none,
        # for which botocore has this setting.
        # https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity-upload.html
        wanted = client.meta.config.request_checksum_calculation == "when_supported"
        self._checksum = {"ChecksumAlgorithm": "CRC32"} if wanted else {}
        self._buffer = bytearray()
        self._size_bytes = 0
        self._parts: list[dict[str, Any]] = []
        self._pending: deque[Future[dict[str, Any]]] = deque()
        self._upload_id = client.create_multipart_upload(**place, **self._checksum)["UploadId"]
        self._pool = ThreadPoolExecutor(PARTS_IN_FLIGHT, thread_name_prefix="ddbio-upload")

    def write(self, data: Buffer, /) -> int:
        """Take all of the bytes; return how many that were."""
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
        """Return what completes the object once all parts are uploaded."""
        # S3 completes no upload without a part; the only one of an empty object is empty.
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
        try:
            answer = self._client.upload_part(**request)
        except (BotoCoreError, ClientError) as error:
            raise to_ddbio_error(error, action="s3:PutObject", resource=_name(self._place)) from error
        part = {"PartNumber": number, "ETag": answer["ETag"]}
        return part | ({"ChecksumCRC32": answer["ChecksumCRC32"]} if "ChecksumCRC32" in answer else {})


def abort_upload(client: Any, place: dict[str, str], upload_id: str) -> None:
    """Abort a multipart upload; pass over one that is gone."""
    try:
        client.abort_multipart_upload(**place, UploadId=upload_id)
    except (BotoCoreError, ClientError) as error:
        if error_code(error) != "NoSuchUpload":
            raise to_ddbio_error(error, action="s3:AbortMultipartUpload", resource=_name(place)) from error


def _name(place: dict[str, str]) -> str:
    return f"s3://{place['Bucket']}/{place['Key']}"
