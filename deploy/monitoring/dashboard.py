"""Makes the dashboard for Grafana: `python deploy/monitoring/dashboard.py` writes `dashboard.json` beside it.

The rows and panels below are all there is to edit; the rest of the JSON is the same for each. A test compares
the file with what this makes, and every metric and label with what the service exposes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import attrs

FILE: Final = Path(__file__).with_suffix(".json")
#: What every query is narrowed to: the copies that are selected above the dashboard.
COPIES: Final = 'job=~"$job",instance=~"$instance"'
#: Grafana's grid is 24 columns wide.
_COLUMNS: Final = 24
_HEIGHT: Final = 8


@attrs.frozen
class Panel:
    """A drawing: `queries` are a legend and an expression each; `{{}}` in one stands for the copies."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    about: str
    kind: str = "timeseries"
    width: int = 8


ROWS: Final = (
    (
        "At a glance",
        Panel("Copies up", "none", (("up", "sum(up{{}})"),), "Copies that answer a scrape.", "stat", 4),
        Panel(
            "Accepted",
            "cps",
            (("spans", "sum(rate(svc_ingest_accepted_spans_total{{}}[5m]))"),),
            "Spans acknowledged per second.",
            "stat",
            4,
        ),
        Panel(
            "Refused exports",
            "reqps",
            (("requests", "sum(rate(svc_ingest_refused_requests_total{{}}[5m])) or vector(0)"),),
            "Exports refused per second, whatever the status.",
            "stat",
            4,
        ),
        Panel(
            "Waiting longest",
            "s",
            (("age", "max(svc_spool_oldest_age_seconds{{}})"),),
            "Age of the oldest batch that is accepted and not stored.",
            "stat",
            4,
        ),
        Panel(
            "Dead letters, 24 h",
            "none",
            (("spans", "sum(increase(svc_ingest_dead_lettered_spans_total{{}}[24h]))"),),
            "Spans that could not be stored.",
            "stat",
            4,
        ),
        Panel(
            "Actors down",
            "none",
            (("actors", "count(svc_actor_alive{{}} == 0) or vector(0)"),),
            "Parts of the service that do not run.",
            "stat",
            4,
        ),
    ),
    (
        "Ingest",
        Panel(
            "Spans per second",
            "cps",
            (
                ("accepted", "sum(rate(svc_ingest_accepted_spans_total{{}}[5m]))"),
                ("stored", "sum(rate(svc_ingest_stored_spans_total{{}}[5m]))"),
                ("duplicates", "sum(rate(svc_ingest_duplicate_spans_total{{}}[5m]))"),
                ("rejected", "sum(rate(svc_ingest_rejected_spans_total{{}}[5m]))"),
                ("dead-lettered", "sum(rate(svc_ingest_dead_lettered_spans_total{{}}[5m]))"),
            ),
            "What becomes of spans. Accepted and stored are the same over time.",
        ),
        Panel(
            "Refused exports by status",
            "reqps",
            (("{{status}}", "sum by (status) (rate(svc_ingest_refused_requests_total{{}}[5m]))"),),
            "4xx is for whoever sends, 5xx is for whoever runs the service.",
        ),
        Panel(
            "Time until queryable",
            "s",
            tuple(
                (
                    f"p{percent}",
                    f"histogram_quantile({percent / 100}, sum by (le) "
                    "(rate(svc_ingest_queryable_seconds_bucket{{}}[5m])))",
                )
                for percent in (50, 95, 99)
            ),
            "From the acknowledgement of a batch until queries see it.",
        ),
    ),
    (
        "Spool and database",
        Panel(
            "Spool",
            "bytes",
            (
                ("{{instance}}", "svc_spool_bytes{{}}"),
                ("budget of {{instance}}", "svc_spool_max_bytes{{}}"),
            ),
            "Bytes that are accepted and not stored yet. At the budget, exports get 503.",
        ),
        Panel(
            "Oldest waiting batch",
            "s",
            (("{{instance}}", "svc_spool_oldest_age_seconds{{}}"),),
            "How far pages and queries are behind.",
        ),
        Panel(
            "Database connections in use",
            "none",
            (
                (
                    "{{pool}}",
                    "sum by (pool) (svc_db_connections{{}}) - sum by (pool) (svc_db_idle_connections{{}})",
                ),
                ("most for {{pool}}", "sum by (pool) (svc_db_max_connections{{}})"),
            ),
            "By kind of work. A pool at its most makes work wait.",
        ),
    ),
    (
        "Answers",
        Panel(
            "Queries per second",
            "reqps",
            (("{{route}}", "sum by (route) (rate(svc_query_seconds_count{{}}[5m]))"),),
            "By route of the query API.",
        ),
        Panel(
            "Time to answer, p95",
            "s",
            (
                (
                    "{{route}}",
                    "histogram_quantile(0.95, sum by (route, le) (rate(svc_query_seconds_bucket{{}}[5m])))",
                ),
            ),
            "Nineteen of twenty queries are answered within this.",
        ),
        Panel(
            "Refused or shed",
            "reqps",
            (
                ("questions of keys", "sum(rate(svc_questions_refused_total{{}}[5m]))"),
                ("connections", "sum(rate(svc_http_shed_total{{}}[5m]))"),
                ("password attempts", "sum(rate(svc_sign_ins_refused_tries_total{{}}[5m]))"),
                ("registrations of applications", "sum(rate(svc_oauth_refused_registrations_total{{}}[5m]))"),
                ("requests about tokens", "sum(rate(svc_oauth_refused_tokens_total{{}}[5m]))"),
            ),
            "Too many at once, or too many attempts.",
        ),
    ),
    (
        "Detection and alerts",
        Panel(
            "Traces per second",
            "cps",
            (
                ("settled", "sum(rate(svc_traces_settled_total{{}}[5m]))"),
                ("counted by detectors", "sum(rate(svc_traces_folded_total{{}}[5m]))"),
            ),
            "Both are the same over time; detectors count a trace once it is settled.",
        ),
        Panel(
            "Detector failures",
            "none",
            (("{{detector}}", "sum by (detector) (increase(svc_detector_failures_total{{}}[1h]))"),),
            "Traces in an hour that a detector could not count.",
        ),
        Panel(
            "Alert messages in an hour",
            "none",
            (
                ("sent", "sum(increase(svc_alert_deliveries_sent_total{{}}[1h]))"),
                ("failed attempts", "sum(increase(svc_alert_deliveries_failed_total{{}}[1h]))"),
                ("given up", "sum(increase(svc_alert_deliveries_dead_total{{}}[1h]))"),
                ("waiting", "max(svc_alert_queued{{}})"),
            ),
            "Messages to the channels of projects.",
        ),
    ),
    (
        "Process, disk and backup",
        Panel(
            "Event loop",
            "s",
            (
                ("latest on {{instance}}", "svc_loop_late_seconds{{}}"),
                ("stalls per second on {{instance}}", "rate(svc_loop_stalls_total{{}}[5m])"),
            ),
            "How late the event loop is, and how often something holds it for over 0.1 s.",
        ),
        Panel(
            "Disk",
            "bytes",
            (
                ("{{kind}} of {{instance}}", "svc_disk_used_bytes{{}}"),
                ("budget of {{instance}}", "svc_disk_budget_bytes{{}} > 0"),
            ),
            "What counts for SVC_DISK_BUDGET_BYTES; nothing where no budget is set.",
        ),
        Panel(
            "Age of the last good backup",
            "s",
            (("backup", "time() - max(svc_backup_last_good_seconds{{}} > 0)"),),
            "Of SVC_BACKUP_DIR; nothing where no backup was made.",
        ),
    ),
)


def expression(text: str) -> str:
    """The expression for the selected copies."""
    return text.replace("{{}}", f"{{{COPIES}}}")


def _target(number: int, legend: str, text: str) -> dict[str, Any]:
    return {
        "refId": chr(ord("A") + number),
        "datasource": {"type": "prometheus", "uid": "$datasource"},
        "expr": expression(text),
        "legendFormat": legend,
    }


def _panel(panel: Panel, number: int, left: int, top: int) -> dict[str, Any]:
    height = _HEIGHT if panel.kind == "timeseries" else _HEIGHT // 2
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": {"type": "prometheus", "uid": "$datasource"},
        "gridPos": {"h": height, "w": panel.width, "x": left, "y": top},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [_target(n, legend, text) for n, (legend, text) in enumerate(panel.queries)],
    }


def _panels() -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = []
    top = 0
    for title, *row in ROWS:
        place = {"h": 1, "w": _COLUMNS, "x": 0, "y": top}
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": title,
                "collapsed": False,
                "gridPos": place,
                "panels": [],
            }
        )
        left, top = 0, top + 1
        for panel in row:
            assert isinstance(panel, Panel)
            panels.append(_panel(panel, len(panels) + 1, left, top))
            left += panel.width
        top += panels[-1]["gridPos"]["h"]
    return panels


def _variable(name: str, label: str) -> dict[str, Any]:
    narrowed = "" if name == "job" else '{job=~"$job"}'
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "$datasource"},
        "query": f"label_values(svc_ingest_requests_total{narrowed}, {name})",
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }


def dashboard() -> str:
    """The whole JSON."""
    source = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    content = {
        "uid": "trace-svc",
        "title": "trace-svc",
        "description": "Ingest, answers, detection and upkeep of trace-svc.",
        "tags": ["trace-svc"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [source, _variable("job", "Job"), _variable("instance", "Copy")]},
        "panels": _panels(),
    }
    return json.dumps(content, indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(dashboard(), encoding="utf-8")
