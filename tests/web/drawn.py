"""Holds the page of a case or finding against itself: headline, facts, axis and table say the same."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

import attrs

#: What a number of each unit looks like, and what one of it is worth.
_FORMS = {
    "share": re.compile(r"<?([\d.,]+) %"),
    "usd": re.compile(r"<?\$([\d.,]+)"),
    "ms": re.compile(r"([\d.,]+) (ms|s|min|h)(?: ([\d.,]+) (s|min))?"),
    "count": re.compile(r"([\d.,]+[kM]?)"),
}
_MS = {"ms": 1.0, "s": 1000.0, "min": 60_000.0, "h": 3_600_000.0}


@attrs.frozen
class Bars:
    """One drawing: its label, the texts on its axis, and its table: value, looked at, since the onset."""

    label: str
    ticks: Sequence[str]
    rows: Sequence[tuple[str, str, bool]]

    @property
    def unit(self) -> str:
        """What its label says that it is drawn in."""
        if self.label.startswith("share"):
            return "share"
        if self.label == "traces":
            return "count"
        return "ms" if "durations" in self.label else "usd"

    def since(self) -> list[tuple[float, float]]:
        """Values and what was looked at, of the steps since the onset that have any."""
        return [
            (number(value, self.unit), number(units, "count"))
            for value, units, after in self.rows
            if after and number(units, "count")
        ]


def number(text: str, unit: str) -> float:
    """What a text says. Fails where it is no number of this unit."""
    found = _FORMS[unit].fullmatch(text)
    assert found is not None, f"{text!r} is no {unit}"
    if unit != "ms":
        return float(found[1].replace(",", ""))
    value = float(found[1].replace(",", "")) * _MS[found[2]]
    return value + (float(found[3]) * _MS[found[4]] if found[3] else 0.0)


def bars_of(page: str) -> list[Bars]:
    """The drawings of bars on a page."""
    found = []
    for figure in re.findall(r'<figure class="chart">(.*?)</figure>', page, re.S):
        caption = re.search(r"<caption>(.*?): ([^:<]+)</caption>", figure)
        if caption is None:
            continue
        axis = re.search(r'<svg class="chart-y".*?</svg>', figure, re.S)
        assert axis is not None
        rows = re.findall(r"<tr><td>.*?</td><td>(.*?)</td><td>(.*?)</td><td>(.*?)</td></tr>", figure)
        found.append(
            Bars(
                caption[2],
                [html.unescape(tick) for tick in re.findall(r"<text[^>]*>(.*?)</text>", axis[0])],
                [(html.unescape(value), units, where == "since") for value, units, where in rows],
            )
        )
    return found


def facts_of(page: str) -> dict[str, str]:
    """The facts below the headline, by their names."""
    (line,) = re.findall(r'<p class="facts">(.*?)</p>', page, re.S)
    return {
        name.strip(): html.unescape(text)
        for name, text in re.findall(r"<span>([^<]*)<b[^>]*>(.*?)</b>", line)
    }


def check(page: str) -> str | None:
    """Headline, facts, axis and table agree; the label of what is drawn, None where nothing is."""
    drawings, facts = bars_of(page), facts_of(page)
    if not drawings:
        return None
    (bars,) = drawings
    assert len(set(bars.ticks)) == len(bars.ticks), bars.ticks
    heights = [number(tick, bars.unit) for tick in bars.ticks if tick != "0"]
    values = [number(value, bars.unit) for value, _, _ in bars.rows]
    assert max(values) <= max(heights) * 1.01
    assert max(values) > 0
    proof = re.search(r'<p class="proof">(.*?)</p>', page, re.S)
    headline = html.unescape(re.sub(r"<[^>]+>", "", proof[1])) if proof else ""
    since = bars.since()
    assert since, "nothing is drawn since it began"
    units = sum(each for _, each in since)
    if bars.label == "share of traces that failed":
        share = sum(value * each for value, each in since) / units
        low, high = re.findall(r"([\d.]+) %", facts["now"])[1:]
        # The bar that holds the onset belongs to one side as a whole.
        assert float(low) - 5 <= share <= float(high) + 5, (share, facts["now"])
        assert facts["now"].partition(" (")[0] in headline
    elif bars.unit == "count":
        counted = number(facts["traces"], "count")
        assert f"{counted:,.0f} trace" in headline or "counted" in facts or "share" in facts
        assert sum(value for value, _ in since) >= counted
    elif bars.unit != "share":
        name = "p95" if bars.label.startswith("95th") else "p50"
        before, _, now = facts[name].partition(" → ")
        assert f"{name} {before} → {now}" in headline
        middle = sorted(value for value, _ in since)[len(since) // 2]
        assert 0.5 <= middle / number(now, bars.unit) <= 2
    return bars.label
