"""What commands that show detections share: JSON for programs, instants and figures for people."""

from __future__ import annotations

import argparse
from typing import Any

import msgspec

from protocol.rest.query import jsonable
from svc.domain.quantities import writer


def lists_bare(parser: argparse.ArgumentParser, listing: argparse.ArgumentParser) -> None:
    """Without a verb a command does what `list` does without arguments."""
    parser.set_defaults(**vars(listing.parse_args([])), verb="list")


def offer_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="print JSON, as the REST API answers it")


def print_json(value: Any) -> None:
    """One value, on lines of its own."""
    print(msgspec.json.format(msgspec.json.encode(value, enc_hook=jsonable), indent=2).decode())


def minute(instant: str | None) -> str:
    """An instant to the minute, `-` for none."""
    return "-" if instant is None else f"{instant[:10]} {instant[11:16]}"


def value_line(subject: dict[str, Any]) -> str:
    """What the metric of a case or finding came to, and what is usual."""
    write = writer(subject["metric"])
    return f"{write(subject['current_value'])}, usually {write(subject['baseline_value'])}"
