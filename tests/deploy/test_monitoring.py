"""Alert rules and dashboard name only metrics that the service exposes, and rules fire when they should.

`promtool` (Debian's `prometheus`) judges the rules; it is in `.ci/release`, since it brings much along.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from actors.alerts import AlertTally
from actors.backups import BackupTally
from actors.disk_budget import DiskTally
from actors.drainer import Tally
from actors.roller import RollerTally
from actors.spool.memory import SpoolState
from actors.supervision import Board
from actors.sweeper import SweepTally
from actors.tee import TeeTally
from protocol.detection_rounds import FAILED
from svc.config.table import setting_rows
from svc.front.health import Ledger
from svc.front.metrics import Metrics, Sources
from svc.front.otlp.intake import IntakeTally
from svc.front.otlp.quotas import Quotas
from tests.conftest import missing
from tests.service import PLAIN, Service

FOLDER = Path(__file__).parents[2] / "deploy" / "monitoring"
RULES = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"][0]["rules"]
CASES = yaml.safe_load((FOLDER / "alerts_test.yaml").read_text())["tests"]
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())
#: What Prometheus itself adds to every sample, and the one sample that it makes.
SCRAPED = {"job", "instance"}
OWN = {"up": set[str]()}

METRIC = re.compile(r"\b((?:svc|tls)_\w+|up)\b(?:\{([^}]*)\})?")


def exposed() -> dict[str, set[str]]:
    """Every sample with the names of its labels, of a service that has all there is switched on."""
    board, tee, alerts = Board(), TeeTally(), AlertTally()
    board.enrol("drainer-1")
    tee.lose("refused", 1)
    alerts.troubles["metric"] += 1
    metrics = Metrics()
    metrics.query_s.labels("count").observe(0.1)
    metrics.watch(
        Sources(
            spool=lambda: SpoolState("memory", False, *(0 for _ in range(10))),
            intake=IntakeTally(refused={"503": 1}),
            quotas=Quotas(),
            tally=Tally(),
            roller=RollerTally(),
            tallying=lambda: {f"{FAILED}agent_loop": 1},
            sweep=SweepTally(),
            keys=lambda: dict.fromkeys(("known", "hits", "misses", "refused_full", "refused_guesses"), 0),
            sign_ins=lambda: dict.fromkeys(
                (
                    "refused_tries",
                    "refused_full",
                    "links_mailed",
                    "links_failed",
                    "links_refused_full",
                    "refused_registrations",
                    "refused_tokens",
                ),
                0,
            ),
            pools=lambda: {"ingest": {"size": 1, "idle": 1, "max": 2}},
            outages=lambda: 0,
            turned_away=lambda: 0,
            shed=lambda: 0,
            board=board,
            in_flight=lambda: 0,
            loop=lambda: {"late_ms": 0, "stalls": 0, "longest_step_cpu_ms": 0},
            ledger=lambda: Ledger(0, 0, 0, 0, 0, 0, 0),
            certificate_left_s=lambda: 1.0,
            backups=BackupTally(last_good_at=datetime.now(UTC)),
            disk=DiskTally(reached_on=date(2030, 1, 1)),
            alerts=alerts,
            tee=tee,
            replica=lambda: {"lag_ms": 1, "state": "near", "asked_replica": 1, "asked_primary": 1},
        )
    )
    return samples(metrics.render().decode())


def samples(text: str) -> dict[str, set[str]]:
    """The names of samples in an exposition, with the names of their labels."""
    labels: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    return labels


EXPOSED = exposed() | OWN


def faults(expression: str, shown: str = "") -> list[str]:
    """What an expression, or the text that shows its labels, names and the service does not expose."""
    wrong: list[str] = []
    reachable = set(SCRAPED)
    for name, matchers in METRIC.findall(expression):
        labels = EXPOSED.get(name)
        if labels is None:
            wrong.append(name)
            continue
        reachable |= labels
        wrong += [
            f"{name}{{{label}}}"
            for label in re.findall(r"(\w+)\s*[=!]", matchers)
            if label not in labels | SCRAPED
        ]
    grouped = re.findall(r"\b(?:by|without) \(([^)]*)\)", expression)
    named = [label.strip() for group in grouped for label in group.split(",")]
    named += re.findall(r"\$labels\.(\w+)", shown) + re.findall(r"\{\{(\w+)\}\}", shown)
    return wrong + [label for label in named if label not in reachable]


def panels() -> list[dict[str, Any]]:
    """The panels that draw something."""
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_names_only_what_is_exposed(rule: dict[str, Any]) -> None:
    assert METRIC.search(rule["expr"])
    assert faults(rule["expr"], str(rule["annotations"])) == []


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel["title"])
def test_a_panel_names_only_what_is_exposed(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        assert METRIC.search(target["expr"])
        assert faults(target["expr"], target["legendFormat"]) == []
        assert 'job=~"$job"' in target["expr"]


@pytest.mark.parametrize(
    ("expression", "shown", "fault"),
    [
        ("rate(svc_ingest_lost_spans_total[5m])", "", "svc_ingest_lost_spans_total"),
        ('svc_actor_alive{pool="a"}', "", "svc_actor_alive{pool}"),
        ("sum by (route) (svc_actor_alive)", "", "route"),
        ("svc_actor_alive", "{{ $labels.pool }}", "pool"),
        ("svc_actor_alive", "{{pool}}", "pool"),
    ],
)
def test_a_metric_or_label_that_is_not_there_is_noticed(expression: str, shown: str, fault: str) -> None:
    assert faults(expression, shown) == [fault]


def test_a_running_service_exposes_what_rules_and_panels_are_held_against(service: Service) -> None:
    text = httpx2.get(f"{service.url}/actuator/prometheus", timeout=30, **PLAIN).text
    real = samples(text)
    for name, labels in real.items():
        assert labels == EXPOSED[name], name
    # The rest needs a setting, or an event of which there is none yet.
    switched = ("svc_backup_", "svc_disk_", "svc_replica_", "svc_tee_", "svc_history_", "tls_")
    events = (
        "svc_ingest_refused_requests",
        "svc_detector_failures",
        "svc_alert_troubles",
        "svc_query_seconds",
    )
    rest = EXPOSED.keys() - OWN.keys() - real.keys()
    assert [name for name in rest if not name.startswith(switched + events)] == []


def test_the_dashboard_is_the_one_that_its_table_makes() -> None:
    made = subprocess.run(
        [sys.executable, "-c", "import dashboard; print(dashboard.dashboard(), end='')"],
        cwd=FOLDER,
        capture_output=True,
        text=True,
        check=True,
    )
    assert made.stdout == (FOLDER / "dashboard.json").read_text()


def test_panels_fill_their_rows_and_do_not_overlap() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in cells, panel["title"]
                cells.add((x, y))
    assert len(cells) == 24 * (1 + max(y for _, y in cells))
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_each_rule_says_what_it_means_and_what_to_do() -> None:
    settings = {row.name for row in setting_rows()}
    for rule in RULES:
        assert set(rule["annotations"]) == {"summary", "meaning", "action"}, rule["alert"]
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert set(re.findall(r"\bSVC_[A-Z_]+", str(rule["annotations"]))) <= settings


def test_each_rule_has_a_case_in_which_it_fires() -> None:
    assert [case["name"] for case in CASES] == [rule["alert"] for rule in RULES]
    for case in CASES:
        last = case["promql_expr_test"][-1]["exp_samples"]
        assert last == [{"labels": f'{{alertname="{case["name"]}"}}', "value": 1}]


def promtool(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """What promtool says."""
    if shutil.which("promtool") is None:
        missing("promtool")
    return subprocess.run(
        ["promtool", *map(str, words)], cwd=FOLDER, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.release
def test_promtool_accepts_the_rules() -> None:
    done = promtool("check", "rules", "alerts.yaml")
    assert done.returncode == 0, done.stderr
    assert f"{len(RULES)} rules found" in done.stdout


@pytest.mark.release
def test_each_rule_fires_when_it_should_and_not_before() -> None:
    done = promtool("test", "rules", "alerts_test.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.release
def test_a_rule_that_fires_too_late_is_noticed(tmp_path: Path) -> None:
    text = (FOLDER / "alerts.yaml").read_text()
    assert "for: 2m" in text
    (tmp_path / "alerts.yaml").write_text(text.replace("for: 2m", "for: 20m"))
    shutil.copy(FOLDER / "alerts_test.yaml", tmp_path)
    assert promtool("test", "rules", tmp_path / "alerts_test.yaml").returncode == 1


@pytest.mark.release
def test_promtool_reads_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    expressions = [target["expr"].replace("$", "") for panel in panels() for target in panel["targets"]]
    rules = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(expressions)]
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = promtool("check", "rules", file)
    assert done.returncode == 0, done.stderr


@pytest.mark.release
def test_no_rule_fires_for_a_service_at_rest(service: Service, tmp_path: Path) -> None:
    text = httpx2.get(f"{service.url}/actuator/prometheus", timeout=30, **PLAIN).text
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    series = []
    for line in lines:
        name, value = line.rsplit(" ", 1)
        labels = name.partition("{")[2].rstrip("}")
        scraped = ",".join(part for part in ('job="trace-svc"', 'instance="a"', labels) if part)
        series.append({"series": f"{name.partition('{')[0]}{{{scraped}}}", "values": f"{value}x120"})
    series.append({"series": 'up{job="trace-svc",instance="a"}', "values": "1x120"})
    shutil.copy(FOLDER / "alerts.yaml", tmp_path)
    firing = {"expr": 'ALERTS{alertstate="firing"}', "eval_time": "100m", "exp_samples": []}
    case = {"interval": "1m", "input_series": series, "promql_expr_test": [firing]}
    file = tmp_path / "at_rest.yaml"
    file.write_text(
        yaml.safe_dump({"rule_files": ["alerts.yaml"], "evaluation_interval": "1m", "tests": [case]})
    )
    done = promtool("test", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr
