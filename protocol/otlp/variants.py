"""The OTLP request classes with other declarations: what the decoder is to look into, and what not.

Owns `lenient` (texts as bytes, for bodies whose texts are broken), `mend_texts`, and `packed_request` with
`packed_span` (spans and attributes as bytes, opened one by one). `protocol.otlp.reading` and
`protocol.otlp.piecewise` are the only callers. All read and write the very same bytes as the classes of the
OTLP packages.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from protocol.inflate import Unreadable
from protocol.otlp.limits import MENDED_EXTRA_BYTES
from protocol.text import NOT_UTF8, utf8_windows


@functools.cache
def lenient(full_name: str) -> type[Message]:
    """A message of OTLP with every `string` field declared `bytes`, which the decoder does not look into."""
    return GetMessageClass(_lenient_pool().FindMessageTypeByName(full_name))


@functools.cache
def _lenient_pool() -> DescriptorPool:
    return _variant(_declare_text_as_bytes)


def _variant(change: Callable[[DescriptorProto], None]) -> DescriptorPool:
    """All messages of a request, each changed. The copies keep their names, in a pool of their own."""

    def visit(message: DescriptorProto) -> None:
        change(message)
        for nested in message.nested_type:
            visit(nested)

    pool = DescriptorPool()
    for module in (common_pb2, resource_pb2, trace_pb2, trace_service_pb2):
        file = FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        for message in file.message_type:
            visit(message)
        pool.AddSerializedFile(file.SerializeToString())
    return pool


def _declare_text_as_bytes(message: DescriptorProto) -> None:
    for field in message.field:
        if field.type == FieldDescriptorProto.TYPE_STRING:
            field.type = FieldDescriptorProto.TYPE_BYTES


#: The fields that are `bytes` by right; every other one in a lenient message was declared `string`.
_TRUE_BYTES: Final = frozenset(
    field.full_name
    for message in (Span, Span.Link, AnyValue)
    for field in message.DESCRIPTOR.fields
    if field.type == FieldDescriptor.TYPE_BYTES
)


def mend_texts(message: Message) -> None:
    """Make every text of a lenient message UTF-8, with U+FFFD for what is not.

    Raises `Unreadable` when that would make a text much longer.
    """
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for child in value if field.is_repeated else (value,):
                mend_texts(child)
        elif field.type == FieldDescriptor.TYPE_BYTES and field.full_name not in _TRUE_BYTES:
            if field.is_repeated:
                value[:] = [_as_utf8(text) for text in value]
            else:
                setattr(message, field.name, _as_utf8(value))


def _as_utf8(text: bytes) -> bytes:
    windows = []
    grown_bytes = 0
    for window in utf8_windows(text):
        windows.append(window.encode())
        grown_bytes += 2 * window.count("\ufffd")
        if grown_bytes > MENDED_EXTRA_BYTES:
            raise Unreadable(NOT_UTF8)
    return b"".join(windows)


@functools.cache
def packed_request() -> type[Message]:
    """The request class with every span and attribute declared `bytes`: the decoder leaves them as they are.

    So the objects of one span alone are in memory at a time, however many there are.
    """
    return GetMessageClass(
        _packed_pool().FindMessageTypeByName(ExportTraceServiceRequest.DESCRIPTOR.full_name)
    )


@functools.cache
def packed_span() -> type[Message]:
    """The class of one span of a packed request, with its attributes declared `bytes`."""
    return GetMessageClass(_packed_pool().FindMessageTypeByName(Span.DESCRIPTOR.full_name))


@functools.cache
def _packed_pool() -> DescriptorPool:
    return _variant(_pack)


def _pack(message: DescriptorProto) -> None:
    for field in message.field:
        if field.name in ("attributes", "spans"):
            field.type = FieldDescriptorProto.TYPE_BYTES
            field.ClearField("type_name")
