"""`trace-svc size --spans-per-day N`: how large a machine must be, and how sure that is.

Works out and prints; asks no service and no database.
"""

from __future__ import annotations

import argparse
import re
from typing import Final

from svc.commands.terminal import offer_json, print_json
from svc.config.table import Settings
from svc.domain.quantities import count, percent, size
from svc.domain.sizing import (
    BUSY_SHARE,
    FULL_SHARE,
    MILLION_SPAN_BYTES,
    MOST_DAYS,
    MOST_SPAN_BYTES,
    MOST_SPANS,
    PEAK,
    InstanceSize,
    sized,
)

_NUMBER: Final = re.compile(r"(\d{1,12}(?:\.\d{1,3})?)([kKMG]?)")
_FACTORS: Final = {"": 1, "k": 1000, "K": 1000, "M": 10**6, "G": 10**9}
#: What is kept where the settings keep everything: the default term of traces.
_DAYS: Final = 90


def number(most: int) -> type:
    """A type for argparse: a whole number from 1 to `most`, written 2500000, 2_500_000, 2,500,000 or 2.5M."""

    class Number(int):
        def __new__(cls, text: str) -> Number:
            match = _NUMBER.fullmatch(re.sub(r"[_,](?=\d{3})", "", text))
            value = 0 if match is None else round(float(match[1]) * _FACTORS[match[2]])
            if not 1 <= value <= most:
                raise argparse.ArgumentTypeError(
                    f"{text!r} is not a number from 1 to {count(most)}; write 2500000 or 2.5M"
                )
            return super().__new__(cls, value)

    return Number


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.description = (
        "Estimates cores, memory and disk from measurements (deploy/BENCHMARKS.md), and how certain they\n"
        "are. An agent run has ten to fifty spans; `trace-svc ask count --last 1d` counts yours."
    )
    parser.add_argument(
        "--spans-per-day", type=number(MOST_SPANS), required=True, metavar="N", help="such as 2500000 or 2.5M"
    )
    parser.add_argument(
        "--span-bytes",
        type=number(MOST_SPAN_BYTES),
        default=int(MILLION_SPAN_BYTES.value),
        metavar="B",
        help="size of one span as sent, with its texts (default: %(default)s)",
    )
    parser.add_argument(
        "--days",
        type=number(MOST_DAYS),
        metavar="D",
        help=f"how long traces are kept (default: SVC_RETENTION_TRACE_TTL_DAYS, {_DAYS} where that is 0)",
    )
    offer_json(parser)


async def run(arguments: argparse.Namespace, settings: Settings) -> None:
    """Print the answer."""
    days = arguments.days or settings.trace_ttl_days or _DAYS
    instance = sized(int(arguments.spans_per_day), int(arguments.span_bytes), int(days))
    if arguments.json:
        print_json(instance.facts())
        return
    for name, text in lines(instance):
        print(f"{name:<8} {text}")
    print(f"\n{instance.certainty}")


def lines(instance: InstanceSize) -> list[tuple[str, str]]:
    """The answer for people."""
    return [
        (
            "traffic",
            f"{count(instance.spans_per_day)} spans per day of {size(instance.span_bytes)},"
            f" {count(instance.mean_spans_s)}/s on average and {count(instance.peak_spans_s)}/s at the peak"
            f" ({PEAK} times that)",
        ),
        ("cores", f"{instance.cores}, of which peak traffic uses at most {percent(BUSY_SHARE)}"),
        ("memory", f"{size(instance.memory_bytes)}, database included"),
        (
            "disk",
            f"{size(instance.disk_bytes)} for {instance.days} days: {size(instance.disk_low_bytes)} to"
            f" {size(instance.disk_high_bytes)} are used, depending on how much of the texts repeats, and"
            f" {percent(1 - FULL_SHARE)} stay free",
        ),
    ]
