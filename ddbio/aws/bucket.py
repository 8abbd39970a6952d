"""Tell that a bucket exists; ask for nothing in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from ddbio.aws.failure import error_code
from ddbio.errors import NotFoundError

if TYPE_CHECKING:
    from ddbio.aws.client import ClientSpec


def check_bucket(spec: ClientSpec, bucket: str) -> None:
    """Refuse a bucket that does not exist; one that cannot be asked passes, since the service may be let in.

    Raises
    ------
    NotFoundError
        If S3 says that there is no such bucket.

    References
    ----------
    https://docs.aws.amazon.com/AmazonS3/latest/API/API_HeadBucket.html
    """
    client: Any = spec.client("s3")
    try:
        client.head_bucket(Bucket=bucket)
    except ClientError as error:
        if error_code(error) in {"404", "NoSuchBucket"}:
            raise NotFoundError(
                f"bucket {bucket} does not exist ({client.meta.endpoint_url}); check its name"
            ) from None
    except BotoCoreError:
        return
