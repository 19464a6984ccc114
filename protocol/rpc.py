"""The `google.rpc` messages that a gRPC client understands when it has to come back later.

Field numbers are those of google/rpc/status.proto, google/rpc/error_details.proto and
google/protobuf/{any,duration}.proto. Written with betterproto2 because these are messages we make.
"""

from __future__ import annotations

from dataclasses import dataclass

import betterproto2


@dataclass(eq=False, repr=False)
class Duration(betterproto2.Message):
    """google.protobuf.Duration."""

    seconds: int = betterproto2.field(1, betterproto2.TYPE_INT64)
    nanos: int = betterproto2.field(2, betterproto2.TYPE_INT32)


@dataclass(eq=False, repr=False)
class AnyMessage(betterproto2.Message):
    """google.protobuf.Any."""

    type_url: str = betterproto2.field(1, betterproto2.TYPE_STRING)
    value: bytes = betterproto2.field(2, betterproto2.TYPE_BYTES)


@dataclass(eq=False, repr=False)
class RetryInfo(betterproto2.Message):
    """google.rpc.RetryInfo: how long to wait before the next try."""

    retry_delay: Duration | None = betterproto2.field(1, betterproto2.TYPE_MESSAGE, optional=True)


@dataclass(eq=False, repr=False)
class Status(betterproto2.Message):
    """google.rpc.Status: the body of `grpc-status-details-bin`."""

    code: int = betterproto2.field(1, betterproto2.TYPE_INT32)
    message: str = betterproto2.field(2, betterproto2.TYPE_STRING)
    details: list[AnyMessage] = betterproto2.field(3, betterproto2.TYPE_MESSAGE, repeated=True)


def retry_after(seconds: int) -> RetryInfo:
    """A RetryInfo of whole seconds."""
    return RetryInfo(retry_delay=Duration(seconds=seconds))


def as_any(info: RetryInfo) -> AnyMessage:
    """A RetryInfo as it travels among the details of a status."""
    return AnyMessage(type_url="type.googleapis.com/google.rpc.RetryInfo", value=bytes(info))
