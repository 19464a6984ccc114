"""The object store that an address names, with the credentials of the settings.

Imported only where there is such an address: the library's import would cost every start.
"""

from __future__ import annotations

import os

from protocol.backup import BackupRefused
from svc.backup.remote import ObjectStore
from svc.config.table import Settings
from svc.config.types import bucket_and_prefix
from svc.outside.objects import S3Account


def object_store(settings: Settings, url: str) -> ObjectStore:
    """The store at `s3://bucket/prefix`. Raises `BackupRefused` for another address, `OSError`."""
    try:
        bucket, prefix = bucket_and_prefix(url)
    except ValueError:
        raise BackupRefused(f"{url[:200]!r} is no address of a bucket; expected s3://bucket/prefix") from None
    # A compose file passes on what nobody set as blank, and the library would take that for a key.
    for name in [name for name, value in os.environ.items() if name.startswith("AWS_") and not value.strip()]:
        del os.environ[name]
    path = settings.backup_s3_ca_file
    key_id, secret = settings.backup_s3_access_key_id, settings.backup_s3_secret_access_key
    token = None
    if key_id is None:
        key_id, secret = settings.aws_access_key_id, settings.aws_secret_access_key
        token = settings.aws_session_token
    return S3Account(
        bucket=bucket,
        prefix=prefix,
        region=settings.aws_region,
        endpoint=settings.backup_s3_endpoint,
        access_key_id=key_id,
        secret_access_key=secret,
        session_token=token,
        authorities=None if path is None else path.read_bytes(),
    ).open()
