"""Renews what the pages for users take from the code: `python -m tests.readme`."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from svc.config.profile import SMALL
from svc.config.text import settings_markdown
from svc.domain.detect.detectors.table import detectors_table
from svc.domain.dialects import general
from svc.domain.dialects.understood import understood
from svc.domain.marks.table import marks_table
from svc.domain.quantities import size
from svc.domain.sizing import MILLION_SPAN_BYTES, sized
from svc.front.mcp import tools

ROOT = Path(__file__).parent.parent

#: The pages for users, the README first.
PAGES = (ROOT / "README.md", *sorted((ROOT / "deploy").glob("*.md")))


#: The columns of the table of dialects, and the fields of which one makes a tick.
COLUMNS: dict[str, set[str]] = {
    "Kind": {"kind"},
    "Model": {"response_model", "request_model"},
    "Provider": {"provider"},
    "Session": {"session_id"},
    "User": {"user_id"},
    "Agent, workflow": {"agent", "workflow", "named"},
    "Tool": {"tool_name", "tool_call_id", "tool_arguments", "tool_result"},
    "Messages": {"messages", "input_value", "output_value"},
    "Tokens in, out": {"input_tokens", "output_tokens"},
    "Cached": {"cache_read_tokens", "cache_write_tokens", "cache_write_1h_tokens"},
    "Reasoning": {"reasoning_tokens"},
    "Audio": {"input_audio_tokens", "output_audio_tokens"},
    "Service tier": {"service_tier"},
    "Cost": {"total_cost"},
    "Finish reason": {"finish_reasons"},
    "First token": {"time_to_first_token_ms"},
    "Documents": {"documents"},
    "Error": {"failed", "error_message", "error_type"},
}


#: The dialect of the general conventions, whose keys every exporter may write.
ANY_SPAN = general.DIALECT.title


def dialects_table() -> str:
    """What is understood, field by dialect, as a table in Markdown."""
    table = understood()
    rows = [["", *COLUMNS, "Input counts"], ["---"] * (len(COLUMNS) + 2)]
    counting = {"inclusive": "with cache", "exclusive": "without cache", "": ""}
    for title, said in table.items():
        lent = [table[ANY_SPAN], *(table[other] for other in said.get("beside", ()))]
        cells = [
            "✓" if said.keys() & fields else "○" if any(other.keys() & fields for other in lent) else ""
            for fields in COLUMNS.values()
        ]
        rows.append([title, *cells, counting[said.get("counting", ("",))[0]]])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def alert_rules_table() -> str:
    """The alert rules for Prometheus: what each means, and what to do."""
    (group,) = yaml.safe_load((ROOT / "deploy/monitoring/alerts.yaml").read_text(encoding="utf-8"))["groups"]
    rows = [["Alert", "Urgency", "Meaning", "What to do"], ["---"] * 4]
    for rule in group["rules"]:
        notes = rule["annotations"]
        rows.append([f"`{rule['alert']}`", rule["labels"]["severity"], notes["meaning"], notes["action"]])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


#: The traffic in the table of sizes.
SPANS_A_DAY = (100_000, 1_000_000, 10_000_000, 50_000_000, 200_000_000)
TERMS_DAYS = (7, 30, 90)


def sizes_table() -> str:
    """How large an instance must be, by its traffic."""
    days = [f"disk for {term} days" for term in TERMS_DAYS]
    rows = [["Spans a day", "at the peak", "cores", "memory", *days, "the rate is"], ["---:"] * (7) + ["---"]]
    for spans in SPANS_A_DAY:
        terms = [sized(spans, int(MILLION_SPAN_BYTES.value), term) for term in TERMS_DAYS]
        rate, basis = terms[0].peak_spans_s, "measured" if terms[0].rate_measured else "proportional"
        disks = [size(instance.disk_bytes) for instance in terms]
        cores, memory = str(terms[0].cores), size(terms[0].memory_bytes)
        rows.append([f"{spans:,}", f"{rate:,.0f}/s", cores, memory, *disks, basis])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def small_table() -> str:
    """What the small profile changes."""
    rows = [["Setting", "with little memory", "Reason"], ["---"] * 3]
    for default in SMALL:
        value = size(int(default.value)) if default.name.endswith("_BYTES") else default.value
        rows.append([f"`{default.name}`", value, default.reason])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def renewed(text: str, mark: str, table: str) -> str:
    """The text with the table between the two marks of this name."""
    start, end = f"<!-- {mark} -->", f"<!-- /{mark} -->"
    return re.sub(f"{start}.*{end}", lambda _: f"{start}\n{table}\n{end}", text, flags=re.DOTALL)


def tables() -> dict[str, str]:
    """Each table by the name of its two marks."""
    return {
        "settings": settings_markdown(),
        "dialects": dialects_table(),
        "tools": tools.markdown_table(),
        "detectors": detectors_table(),
        "alert-rules": alert_rules_table(),
        "sizes": sizes_table(),
        "small": small_table(),
        "marks": marks_table(),
    }


def whole() -> str:
    """All pages, one after the other."""
    return "\n".join(page.read_text(encoding="utf-8") for page in PAGES)


def main() -> None:
    """Write each table between its two marks, on whichever page has them."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for mark, table in tables().items():
            text = renewed(text, mark, table)
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
