"""Laws of `trace-svc reconcile`: a bill beside what was imported, to the digit, and a status that says it."""

from __future__ import annotations

import gzip
import json
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.commands.test_import_transcripts import imported, of_yesterday
from tests.forked import ran
from tests.importers.transcribed import claude_folder
from tests.service import TRACE_SVC, Service, running

HEAD = "usage_date_utc,model,workspace,api_key,usage_type,context_window,token_type,cost_usd,list_price_usd"


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """An instance with the sessions of a day."""
    with running(SVC_AUTH_DISABLED="true") as service:
        folder = tmp_path_factory.mktemp("transcripts")
        claude_folder(folder)
        of_yesterday(folder)
        imported(service, "claude-code", folder)
        yield service


def reconciled(service: Service, file: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return ran([TRACE_SVC, "reconcile", str(file), *words], env=dict(service.env), timeout_s=120)


def bill(file: Path, cost: str) -> Path:
    """Anthropic's bill of yesterday."""
    day = (datetime.now(UTC) - timedelta(days=1)).date()
    text = f"{HEAD}\n{day},Claude Opus 4.5,Default,key,message,200k,all,{cost},{cost}\n"
    file.write_bytes(gzip.compress(text.encode()) if file.suffix == ".gz" else text.encode())
    return file


@pytest.mark.release
def test_a_bill_to_the_digit_agrees_and_one_digit_more_does_not(instance: Service, tmp_path: Path) -> None:
    # 97 tokens of input, 130 of output, 27,000 read from and 1,250 written to the cache.
    done = reconciled(instance, bill(tmp_path / "cost.csv.gz", "0.0250475"))
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 of 1 rows agree" in done.stdout
    done = reconciled(instance, bill(tmp_path / "cost.csv", "0.0250476"), "--json")
    assert done.returncode == 1, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["our_cost"], answer["difference"]) == ("0.0250475", "0.0000001")
    (row,) = answer["rows"]
    assert (row["our_calls"], row["agrees"], len(row["traces"])) == (6, False, 2)
    done = reconciled(instance, tmp_path / "cost.csv")
    assert "  trace " in done.stdout
    assert "  call site " in done.stdout


def test_what_cannot_be_compared_says_why(instance: Service, tmp_path: Path) -> None:
    file = tmp_path / "other.csv"
    file.write_text("a,b\n1,2\n")
    done = reconciled(instance, file)
    assert done.returncode == 1
    assert "no export that is known has these columns" in done.stderr
    file.write_bytes(b"\x1f\x8bnothing")
    assert "starts like gzip but is not" in reconciled(instance, file).stderr
    assert "does not exist" in reconciled(instance, tmp_path / "none.csv").stderr
