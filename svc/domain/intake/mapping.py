"""What a span becomes: from its wire shape, in any mix of dialects, to the row that is stored (contract §3).

Owns: `map_span` and the rules for kind, status, tokens, costs and previews. The drainers call it once a
span, on the hot path; the payload keeps everything else for the read side. Never raises over what a client
sent and never decides which dialect wins: that is `dialects.PRECEDENCE`.

Measured 2026-11 on one core: 23 µs for a span of 4 KB with 20 GenAI attributes and its messages as JSON, 31
µs for 4 KB and 24 attributes of OpenInference or OpenLLMetry, 23 to 31 µs for 4 KB of the other dialects, 9
µs for a span that is no model's.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final

from protocol.otlp.reading import WireSpan
from protocol.text import clean
from svc.domain.dialects import read
from svc.domain.dialects.dialect import Found
from svc.domain.dialects.names import PREPARES
from svc.domain.intake.asked_calls import calls_beside, calls_in_answer, calls_in_request, text_of_calls
from svc.domain.pricing.prices import PriceBook, Priced
from svc.domain.spans.call_site import infer_call_site
from svc.domain.spans.messages import answer, conversation, last_text, last_user_text, preview, text_of
from svc.domain.spans.span import FIRST_IN_REQUEST, CostSource, Kind, SpanRow, Status, ToolCall, instant
from svc.domain.spans.tool_results import failure_in
from svc.domain.spans.values import MESSAGE_CHARS, NAME_CHARS, decoded, identifier, name, text

#: A span makes at most as many tool calls as this.
MAX_TOOL_CALLS: Final = FIRST_IN_REQUEST
#: The `mcp.method.name` of a call of a tool; other methods are steps.
MCP_CALL: Final = "tools/call"

_ERROR: Final = 2
#: An exception as Python prints it: its class, and the text that it was made with.
_PRINTED: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_.]{0,99})\((?=['\"])")
_ZERO: Final = Decimal(0)
_NO_COSTS: Final = (None, None, None, None, None)
_UNNAMED: Final = "unknown"

Buckets = tuple[int | None, int | None, int | None, int | None, int | None]
Costs = tuple[Decimal | None, Decimal | None, Decimal | None, Decimal | None, Decimal | None]


def map_span(span: WireSpan, prices: PriceBook) -> SpanRow:
    """The row of a span.

    Ended before it started, it ended when it started. Without a name it is called `unknown`. Longer than
    functions should be because it names each column once.
    """
    attributes = span.attributes
    resource = span.resource.attributes
    reading = read(attributes)
    if reading.is_silent():
        reading.hear_name(span)
    fields = reading.found
    said_in = reading.input_messages(span)
    said_out = reading.output_messages(span)
    answer_text, requested, failures = (
        (None, (), {}) if said_out is None else answer(said_out, MAX_TOOL_CALLS)
    )
    model = fields.get("response_model") or fields.get("request_model")
    tokens = tokens_of(fields)
    has_usage = tokens != (None, None, None, None, None)
    kind = kind_of(fields, model is not None and (has_usage or bool(said_in or said_out)))
    if kind == "llm" and not has_usage and span.name.endswith(PREPARES):
        kind = "step"
    calls_a_tool = kind == "tool" or kind == "mcp"
    if calls_a_tool and span.events:
        reading.hear_tool(span)
    if kind == "llm" and not requested and "tool_name" in fields:
        requested = calls_beside(fields, MAX_TOOL_CALLS)

    started_at = instant(span.start_ns)
    status, error_type, error_message = _outcome(
        span, fields, kind, answer_text, bool(span.events) and reading.raises()
    )
    audio_in, audio_out, hour_tokens, tier = (
        _uncached_audio(fields),
        fields.get("output_audio_tokens"),
        fields.get("cache_write_1h_tokens"),
        fields.get("service_tier"),
    )
    priced = prices.price(
        provider=fields.get("provider"),
        model=model,
        at=started_at,
        service_tier=tier,
        input_tokens=tokens[0],
        output_tokens=tokens[1],
        cache_read_tokens=tokens[2],
        cache_write_tokens=tokens[3],
        reasoning_tokens=tokens[4],
        cache_write_1h_tokens=hour_tokens,
        input_audio_tokens=audio_in,
        output_audio_tokens=audio_out,
    )
    costs, cost_source = _costs(fields, priced, tokens)
    tagged = fields.get("call_site")
    session_id = fields.get("session_id") or text(resource.get("session.id"))
    user_id = fields.get("user_id") or text(resource.get("user.id"))
    response_id = fields.get("response_id")
    # By position, in the order of its columns: forty keywords take five times as long.
    return SpanRow(
        span.trace_id,
        span.span_id,
        span.parent_span_id or None,
        kind,
        name(fields.get("title") or span.name) or _UNNAMED,
        status,
        error_type,
        error_message,
        started_at,
        instant(max(span.end_ns, span.start_ns)) if span.end_ns else None,
        # call_site_id, tagged
        identifier(tagged) if tagged is not None else _call_site(span, fields, kind),
        tagged is not None,
        None if session_id is None else identifier(session_id),
        None if user_id is None else identifier(user_id),
        # provided_model_name
        None if model is None else name(model),
        priced.model_id,
        None if priced.provider is None else clean(priced.provider),
        None if response_id is None else identifier(response_id),
        # The buckets of tokens, then of costs.
        tokens[0],
        tokens[1],
        tokens[2],
        tokens[3],
        tokens[4],
        costs[0],
        costs[1],
        costs[2],
        costs[3],
        costs[4],
        cost_source,
        _input_preview(kind, fields, said_in),
        _output_preview(kind, fields, said_out, answer_text, bool(requested)),
        # tool_calls
        _own_call(span, fields, status, error_type, error_message)
        if calls_a_tool
        else calls_in_answer(requested, failures)
        if kind == "llm" and requested
        else calls_in_request(reading.request(span), MAX_TOOL_CALLS)
        if reading.has_request()
        else (),
        # usage_repeats: the roll-up says.
        None,
        None if tier is None else name(tier),
        audio_in,
        audio_out,
        hour_tokens,
        # price_book
        None if cost_source is None or cost_source == "provided" else prices.version,
    )


def _call_site(span: WireSpan, fields: Found, kind: Kind) -> str:
    # Cut before the call, which remembers what it was asked.
    service = span.resource.attributes.get("service.name")
    component, requested, answering = (
        fields.get("named"),
        fields.get("request_model"),
        fields.get("response_model"),
    )
    return infer_call_site(
        service[:NAME_CHARS] if type(service) is str else None,
        component and component[:NAME_CHARS],
        span.name[:NAME_CHARS],
        requested and requested[:NAME_CHARS],
        answering and answering[:NAME_CHARS],
        kind,
    )


def kind_of(fields: Found, calls_a_model: bool) -> Kind:
    """The kind a dialect names; else what tool attributes say; else `llm` for a model with usage or messages.

    A tool reached over MCP is `mcp`.
    """
    kind: Kind | None = fields.get("kind")
    method = fields.get("mcp_method")
    if kind is None:
        if method is not None:
            kind = "mcp" if method == MCP_CALL else "step"
        elif "tool_name" in fields or "tool_call_id" in fields:
            kind = "tool"
        else:
            kind = "llm" if calls_a_model else "step"
    if kind == "tool" and (method is not None or "mcp" in fields):
        return "mcp"
    return kind


def tokens_of(fields: Found) -> Buckets:
    """The five disjoint buckets out of inclusive totals, clamped at 0.

    A cached part that is larger than the whole input proves that the input was reported without it
    (Anthropic's own counting): then the input stays as it is. Parts that only together exceed it may
    overlap, and are subtracted.
    """
    input_tokens, output_tokens = fields.get("input_tokens"), fields.get("output_tokens")
    cache_read, cache_write, reasoning = (
        fields.get("cache_read_tokens"),
        fields.get("cache_write_tokens"),
        fields.get("reasoning_tokens"),
    )
    if input_tokens is not None:
        cached_read, cached_write = cache_read or 0, cache_write or 0
        if cached_read <= input_tokens and cached_write <= input_tokens:
            input_tokens = max(input_tokens - cached_read - cached_write, 0)
    if output_tokens is not None and reasoning:
        output_tokens = max(output_tokens - reasoning, 0)
    return input_tokens, output_tokens, cache_read, cache_write, reasoning


def _uncached_audio(fields: Found) -> int | None:
    """The audio of the input bucket: what was read from the cache is in another bucket, at another price."""
    audio: int | None = fields.get("input_audio_tokens")
    if audio and (cached := fields.get("cached_audio_tokens")) and cached <= audio:
        return audio - int(cached)
    return audio


def _costs(fields: Found, priced: Priced, tokens: Buckets) -> tuple[Costs, CostSource | None]:
    """The exporter's word first, whole or not at all: its buckets are never filled up from the book.

    A cost of nothing for what has a price is no word: some exporters write it where their own list of prices
    is missing.
    """
    total, input_cost, output_cost = (
        fields.get("total_cost"),
        fields.get("input_cost"),
        fields.get("output_cost"),
    )
    cache_read, cache_write = fields.get("cache_read_cost"), fields.get("cache_write_cost")
    # A cost of nothing may come from a list of prices that was not there; the book knows better.
    if not (total or input_cost or output_cost or cache_read or cache_write) and (
        priced.total_cost or (total is input_cost is output_cost is cache_read is cache_write is None)
    ):
        if priced.total_cost is not None:
            book = (priced.input_cost, priced.output_cost, priced.cache_read_cost, priced.cache_write_cost)
            return (*book, priced.total_cost), "inferred_maker" if priced.by_maker else "inferred"
        # Nothing used costs nothing: only tokens without a price are unpriced.
        return _NO_COSTS, "unpriced" if any(tokens) else None
    cached = (cache_read or _ZERO) + (cache_write or _ZERO)
    if input_cost is not None:
        input_cost = max(input_cost - cached, _ZERO)
    if total is None:
        total = (input_cost or _ZERO) + (output_cost or _ZERO) + cached
    return (input_cost, output_cost, cache_read, cache_write, total), "provided"


def _outcome(
    span: WireSpan, fields: Found, kind: Kind, answer_text: str | None, raises: bool
) -> tuple[Status, str | None, str | None]:
    """Status, error type and error message; the last exception is the one that ended the span.

    A span fails by its status or its exporter's word. A tool's span fails as well by an error type, an
    exception and what its result says: the instrumentation saw a call that returned, the agent a failure.
    Where the exporter leaves the status alone, an exception `raises` any span's failure.
    """
    failed = span.status_code == _ERROR or "failed" in fields
    calls_a_tool = kind == "tool" or kind == "mcp"
    if not failed and not calls_a_tool and not raises:
        return "ok", None, None
    error_type: str | None = fields.get("error_type")
    message: str | None = span.status_message or fields.get("error_message")
    if error_type is not None and calls_a_tool:
        failed = True
    for event in reversed(span.events):
        if event.name == "exception":
            failed = True
            error_type = error_type or text(event.attributes.get("exception.type"))
            message = message or text(event.attributes.get("exception.message"))
            break
    if calls_a_tool and (error_type is None or message is None):
        result = fields.get("tool_result", fields.get("output_value", answer_text))
        if (failure := failure_in(result)) is not None:
            failed = True
            error_type = error_type or failure[0]
            message = message or failure[1]
    if not failed:
        return "ok", None, None
    return (
        "error",
        None if error_type is None else name(_class_name(error_type, message)),
        None if message is None else clean(message[:MESSAGE_CHARS]),
    )


def _class_name(error_type: str, message: str | None) -> str:
    """The name in `<class 'x.Y'>`, as Python prints a class; anything else as it is.

    Of an `Exception` whose message begins with another as Python prints it, the name of that.
    """
    if error_type == "Exception" and message and (printed := _PRINTED.match(message)):
        return printed[1]
    return error_type[8:-2] if error_type.startswith("<class '") and error_type.endswith("'>") else error_type


def _input_preview(kind: Kind, fields: Found, messages: list[Any] | None) -> str | None:
    if (kind == "tool" or kind == "mcp") and (value := fields.get("tool_arguments")) is not None:
        return preview(text_of(value))
    if messages:
        return preview(last_user_text(messages))
    if (input_text := fields.get("input_text")) is not None:
        return preview(input_text)
    return _value_preview(kind, fields.get("input_value"), last_user_text)


def _output_preview(
    kind: Kind, fields: Found, messages: list[Any] | None, answer_text: str | None, asks: bool
) -> str | None:
    if (kind == "tool" or kind == "mcp") and (value := fields.get("tool_result")) is not None:
        return preview(text_of(value))
    if answer_text is not None:
        return preview(answer_text)
    if asks and kind == "llm":
        return preview(text_of_calls(messages, fields))
    # What an embedding answers is no text.
    if (messages and kind == "llm") or kind == "embedding":
        return None
    return _value_preview(kind, fields.get("output_value"), last_text)


def _value_preview(kind: Kind, value: Any, reader: Any) -> str | None:
    """The conversation inside a chain's value when it holds one, else the value itself."""
    if value is None:
        return None
    if kind != "tool" and kind != "mcp":
        opened = decoded(value)
        if opened == []:
            return None
        if (messages := conversation(opened)) is not None and (content := reader(messages)) is not None:
            return preview(content)
    return preview(text_of(value))


def _own_call(
    span: WireSpan, fields: Found, status: Status, error_type: str | None, error_message: str | None
) -> tuple[ToolCall, ...]:
    """The call that a tool's span is."""
    tool_name = fields.get("tool_name") or name_after_operation(span.name)
    call_id = fields.get("tool_call_id")
    return (ToolCall(0, name(tool_name), call_id and identifier(call_id), status, error_type, error_message),)


def name_after_operation(span_name: str) -> str:
    """The tool in `execute_tool search`, `tools/call search` or `search.__call__`, else the span's name."""
    # The message of a request, as the SDK of MCP names its span.
    operation, _, operand = span_name.removeprefix("MCP send ").partition(" ")
    tool_name = operand if operand and operation in ("execute_tool", MCP_CALL) else span_name
    # What DSPy's tools are called by.
    return tool_name.removesuffix(".__call__") or _UNNAMED
