"""The tools, the nineteen of the specification and what extends them: one table of name, arguments, handler.

`tools/list`, validation, the instructions and the README's table all come from it. Every tool reads the one
project of the key, and none writes (spec, tool rule 11).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cache, cached_property
from typing import Any, Final

import attrs
import msgspec

from protocol.agents import RUN_TOOLS
from protocol.validation import validation_text
from svc.front.mcp import arguments as a
from svc.front.mcp import handlers as h
from svc.front.mcp import query_handlers as q
from svc.front.mcp import texts
from svc.front.mcp.argument_types import Arguments
from svc.front.mcp.given import ToolError
from svc.front.mcp.outputs import output_schema
from svc.front.mcp.reads import Reads
from svc.front.mcp.schemas import schema_of, tidied
from svc.front.mcp.texts import ADD_TRACE_ID, SEARCH_ELSEWHERE


class BadArguments(Exception):
    """The arguments do not fit the input schema; the text names the offender."""


@attrs.frozen
class Tool:
    """One tool.

    `ask_for` are required arguments whose absence is a tool error, each with its text; `hints` say what to do
    instead when the value of an argument is none of those there are. `specified` are the arguments that the
    specification gives it, where `arguments` are more; `extended` says whether those are taken. A tool that
    the specification does not have `is_extension`.
    """

    name: str
    arguments: type[Arguments]
    handler: Callable[[Reads, int, Any], Awaitable[dict[str, Any] | msgspec.Struct]]
    ask_for: dict[str, str] = attrs.field(factory=dict)
    hints: dict[str, str] = attrs.field(factory=dict)
    specified: type[Arguments] | None = None
    extended: bool = True
    is_extension: bool = False

    @property
    def description(self) -> str:
        """What it is for."""
        extension = texts.EXTENSIONS.get(self.name) if self.extended else None
        return " ".join(filter(None, (texts.DESCRIPTIONS[self.name], extension)))

    @property
    def taken(self) -> type[Arguments]:
        """The arguments that it takes."""
        return self.arguments if self.extended or self.specified is None else self.specified

    def schema(self) -> dict[str, Any]:
        """The input schema."""
        return schema_of(self.taken)

    def listed(self, *, to_run: bool = False) -> dict[str, Any]:
        """The tool as `tools/list` shows it. A run needs no title, and pays for what it reads of answers."""
        shown = {
            "name": self.name,
            "description": self.description,
            "inputSchema": self.schema(),
            "annotations": {"readOnlyHint": True, "openWorldHint": False},
        }
        if self.extended and not to_run:
            shown["title"] = texts.TITLES[self.name]
            shown["outputSchema"] = output_schema(self.name)
        return shown

    def read(self, arguments: dict[str, Any]) -> Arguments:
        """The arguments as their class. Raises `BadArguments`, and `ToolError` for what is asked for."""
        try:
            tidy = tidied(arguments)
            for name, text in self.ask_for.items():
                if name not in tidy:
                    raise ToolError(text)
            taken = msgspec.convert(tidy, self.taken)
            # Handlers know one class, whose further arguments are unset.
            return taken if self.taken is self.arguments else msgspec.convert(tidy, self.arguments)
        except msgspec.ValidationError as error:
            text = validation_text(error, self.taken)
            raise BadArguments(f"invalid arguments for {self.name}: {text}{self._hint(text)}") from None
        except RecursionError:
            raise BadArguments(f"invalid arguments for {self.name}: nested too deeply") from None

    def _hint(self, text: str) -> str:
        """What to do instead where the value of an argument is none of those there are."""
        return "".join(hint for name, hint in self.hints.items() if f"at `$.{name}`; one of:" in text)


TOOLS: Final = (
    Tool("get_project", a.GetProject, h.get_project),
    Tool("list_call_sites", a.ListCallSites, h.list_call_sites),
    Tool("list_failure_modes", a.ListFailureModes, h.list_failure_modes),
    Tool("list_cases", a.ListCases, h.list_cases),
    Tool("get_case", a.GetCase, h.get_case),
    Tool("list_findings", a.ListFindings, h.list_findings),
    Tool("get_finding", a.GetFinding, h.get_finding),
    Tool("get_finding_evidence", a.GetFindingEvidence, h.get_finding_evidence),
    Tool("list_traces", a.ListTracesExtended, h.list_traces, specified=a.ListTraces),
    Tool("get_trace", a.GetTraceExtended, h.get_trace, specified=a.GetTrace),
    Tool("list_spans", a.ListSpansExtended, h.list_spans, specified=a.ListSpans),
    Tool("get_span", a.GetSpan, h.get_span, ask_for={"trace_id": ADD_TRACE_ID}),
    Tool("list_sessions", a.ListSessions, h.list_sessions),
    Tool("get_session", a.GetSession, h.get_session),
    Tool("describe_dataset", a.DescribeDataset, q.describe_dataset),
    Tool("query_count", a.QueryCountExtended, q.query_count, specified=a.QueryCount),
    Tool("query_timeseries", a.QueryTimeseriesExtended, q.query_timeseries, specified=a.QueryTimeseries),
    Tool("query_facets", a.QueryFacetsExtended, q.query_facets, specified=a.QueryFacets),
    Tool(
        "query_search",
        a.QuerySearchExtended,
        q.query_search,
        hints={"dataset": SEARCH_ELSEWHERE},
        specified=a.QuerySearch,
    ),
    Tool("compare", a.Compare, q.compare, is_extension=True),
)


@attrs.frozen
class Catalogue:
    """The tools on offer by name, and `tools/list` as it is sent, made when it is first asked for."""

    tools: Mapping[str, Tool]

    @cached_property
    def listed(self) -> msgspec.Raw:
        """To everybody."""
        return _listed(self.tools.values())

    @cached_property
    def listed_to_runs(self) -> msgspec.Raw:
        """To the key of a run."""
        return _listed([tool for name, tool in self.tools.items() if name in RUN_TOOLS], to_run=True)


@cache
def catalogue(*, extensions: bool) -> Catalogue:
    """The tools with all that extends the specification, or exactly its nineteen."""
    tools = {
        tool.name: attrs.evolve(tool, extended=extensions)
        for tool in TOOLS
        if extensions or not tool.is_extension
    }
    return Catalogue(tools)


def _listed(tools: Iterable[Tool], *, to_run: bool = False) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode({"tools": [tool.listed(to_run=to_run) for tool in tools]}))


def instructions(names: Iterable[str]) -> str:
    """What an agent should know before its first call, built from the names of the tools on offer."""
    return texts.instructions(names)


def markdown_table() -> str:
    """The table as the README shows it."""
    lines = ["| Tool | Needs | Takes | What it does |", "|---|---|---|---|"]
    for tool in TOOLS:
        schema = tool.schema()
        needed = schema.get("required", [])
        taken = [name for name in schema["properties"] if name not in needed]
        cells = (
            f"`{tool.name}`",
            ", ".join(f"`{name}`" for name in needed),
            ", ".join(f"`{name}`" for name in taken),
            tool.description,
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
