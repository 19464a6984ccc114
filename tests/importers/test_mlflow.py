"""MLflow: pages that a real server answered (3.17) are the traces that its client logged."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.importing import NotThere, PageTooLarge
from protocol.operator import OperatorError
from svc.importers.mlflow import NOT_STORED, MlflowExperiment
from tests.importers.replies import Replies, every_page, recorded, rows_of

#: The traces of the two pages by their number: of two that began in the same millisecond the id decides.
LOGGED = (0, 1, 2, 3, 4, 6)


def server(path: str, query: dict[str, str], body: Any) -> bytes | dict[str, Any]:
    if path.endswith("get-by-name"):
        return {"experiment": {"experiment_id": "1", "name": query["experiment_name"]}}
    if path.endswith("search"):
        number = {None: 1, "eyJvZmZzZXQiOiAzfQ==": 2}.get(body.get("page_token"))
        return recorded(f"mlflow_search_{number}.json") if number else {}
    number = 1 if query["trace_ids"] in recorded("mlflow_batch_1.json").decode() else 2
    return recorded(f"mlflow_batch_{number}.json")


async def test_its_pages_are_the_traces_that_were_logged() -> None:
    replies = Replies(server)
    pages = await every_page(MlflowExperiment(replies, "moving out", "app"))
    assert [len(page.told) for page in pages] == [9, 9, 0]
    assert replies.asked[1][2]["locations"] == [
        {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": "1"}}
    ]
    assert replies.asked[1][2]["filter"] == "timestamp_ms < 1796083200000"
    rows = [one.row for one in rows_of(pages).values()]
    assert len(rows) == 18
    calls = sorted((row for row in rows if row.kind == "llm"), key=lambda row: row.started_at)
    assert [(row.input_tokens, row.output_tokens) for row in calls] == [(100 + n, 10) for n in LOGGED]
    assert {row.model_id for row in calls} == {"gpt-4o"}
    assert [row.status for row in calls] == ["error", *["ok"] * 5]
    assert sum(tokens or 0 for page in pages for tokens in page.told.values()) == sum(110 + n for n in LOGGED)
    roots = sorted((row for row in rows if row.parent_span_id is None), key=lambda row: row.started_at)
    assert [(row.session_id, row.user_id) for row in roots] == [(f"session {n}", f"user {n}") for n in LOGGED]
    assert {row.kind for row in rows} == {"agent", "tool", "llm"}


async def test_tags_of_people_are_said_by_the_resource_and_those_of_mlflow_are_not() -> None:
    (first, *_) = await every_page(MlflowExperiment(Replies(server), "1", "app"))
    text = first.bodies[0][1].decode()
    assert '"team"' in text
    assert "mlflow.artifactLocation" not in text


async def test_traces_that_are_too_large_together_are_fetched_apart() -> None:
    class Together(Replies):
        async def __call__(self, method: str, path: str, query: Any = (), body: bytes = b"") -> bytes:
            if len(query) > 1:
                raise PageTooLarge
            return await super().__call__(method, path, query, body)

    replies = Together(server)
    pages = await every_page(MlflowExperiment(replies, "1", "app"))
    assert sum(len(page.told) for page in pages) == 18
    assert sum("batchGet" in asked[0] for asked in replies.asked) == 6


async def test_a_trace_without_stored_spans_is_counted() -> None:
    def empty(path: str, query: dict[str, str], body: Any) -> Any:
        return {"traces": []} if path.endswith("batchGet") else server(path, query, body)

    pages = await every_page(MlflowExperiment(Replies(empty), "1", "app"))
    assert [page.unread for page in pages] == [{NOT_STORED: 3}, {NOT_STORED: 3}, {}]


async def test_what_is_not_there_says_so() -> None:
    with pytest.raises(OperatorError, match="no experiment 'gone'"):
        await every_page(MlflowExperiment(Replies(lambda *_: NotThere()), "gone", "app"))
    with pytest.raises(OperatorError, match=r"older than release 3\.5"):
        await every_page(MlflowExperiment(Replies(lambda *_: NotThere()), "1", "app"))
