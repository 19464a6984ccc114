"""MLflow: pages that a real server answered (3.17) are the traces that its client logged."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from protocol.importing import FailedQuestion, NotThere, PageTooLarge
from protocol.operator import OperatorError
from svc.importers.mlflow import NOT_GIVEN, NOT_READ, NOT_STORED, TOO_LARGE, MlflowExperiment
from svc.importers.mlflow_artifacts import artifact_spans
from tests.importers.replies import Replies, every_page, recorded, rows_of

Server = Callable[[str, dict[str, str], Any], Any]

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


def artifact_store(answer: Callable[[str], Any]) -> Server:
    """A server that keeps spans in its artifact store: as 3.17 does on files, `batchGet` is no use there."""

    def reply(path: str, query: dict[str, str], body: Any) -> Any:
        if path.endswith("get-by-name"):
            return {"experiment": {"experiment_id": "1", "name": query["experiment_name"]}}
        if path.endswith("search"):
            return recorded("mlflow_search_artifacts.json")
        if path.endswith("batchGet"):
            return FailedQuestion("answers 500")
        assert path == "/ajax-api/2.0/mlflow/get-trace-artifact"
        return answer(query["request_id"])

    return reply


IN_STORE = [
    trace["trace_id"] for trace in msgspec.json.decode(recorded("mlflow_search_artifacts.json"))["traces"]
]


async def test_spans_in_the_artifact_store_are_read_there() -> None:
    def given(trace_id: str) -> Any:
        return recorded("mlflow_artifact.json") if trace_id == IN_STORE[0] else NotThere()

    replies = Replies(artifact_store(given))
    (page,) = await every_page(MlflowExperiment(replies, "1", "app"))
    assert page.unread == {NOT_STORED: 5}
    rows = {row.name: row for row in (one.row for one in rows_of([page]).values())}
    assert {name: row.kind for name, row in rows.items()} == {
        "answer": "agent",
        "look up": "tool",
        "chat": "llm",
    }
    assert rows["answer"].trace_id.hex() == IN_STORE[0].removeprefix("tr-")
    assert rows["chat"].parent_span_id == rows["answer"].span_id
    assert (rows["chat"].input_tokens, rows["chat"].output_tokens) == (105, 10)
    assert rows["chat"].model_id == "gpt-4o"
    assert (rows["answer"].session_id, rows["answer"].user_id) == ("session 5", "user 5")
    assert sum(tokens or 0 for tokens in page.told.values()) == 115
    assert not any("batchGet" in asked[0] for asked in replies.asked)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (FailedQuestion("answers 500"), NOT_GIVEN),
        (NotThere(), NOT_STORED),
        (PageTooLarge(), TOO_LARGE),
        (b"<html>", NOT_READ),
        ({"error": "none"}, NOT_READ),
        ({"spans": []}, NOT_STORED),
    ],
    ids=["fails", "gone", "large", "page", "other", "empty"],
)
async def test_a_trace_that_the_artifact_store_does_not_give_is_counted_with_the_reason(
    answer: Any, reason: str
) -> None:
    (page,) = await every_page(MlflowExperiment(Replies(artifact_store(lambda _id: answer)), "1", "app"))
    assert page.unread == {reason: 6}
    assert page.bodies == ()


async def test_a_trace_that_spoils_those_beside_it_is_left_out_alone() -> None:
    bad = "tr-5b652e2da9d9b101ab6082402ef336c9"

    def spoiled(path: str, query: dict[str, str], body: Any) -> Any:
        if path.endswith("batchGet"):
            return FailedQuestion("answers 500")
        if path.endswith("get-trace-artifact"):
            return (
                FailedQuestion("answers 500") if query["request_id"] == bad else {"spans": [as_kept(query)]}
            )
        return server(path, query, body)

    replies = Replies(spoiled)
    pages = await every_page(MlflowExperiment(replies, "1", "app"))
    assert [page.unread for page in pages] == [{NOT_GIVEN: 1}, {}, {}]
    assert sum(len(page.told) for page in pages) == 5
    # It is believed the first time.
    assert sum("batchGet" in asked[0] for asked in replies.asked) == 1


def as_kept(query: dict[str, str]) -> dict[str, Any]:
    number = query["request_id"].removeprefix("tr-")
    return {**LATER, "otel_trace_id": number}


#: One span in the forms that releases of MLflow have kept it in.
LATER: dict[str, Any] = {
    "version": 4,
    "trace_id": "tr-0f",
    "otel_trace_id": "0f" * 16,
    "span_id": "0a" * 8,
    "parent_span_id": "0b" * 8,
    "name": "chat",
    "start_time_unix_nano": 1795444749143980774,
    "end_time_unix_nano": 1795444749144434248,
    "events": [
        {"name": "exception", "time_unix_nano": 1795444749144000000, "attributes": {"exception.type": "E"}}
    ],
    "status": {"code": "ERROR", "message": "late"},
    "attributes": {
        "mlflow.spanType": '"CHAT_MODEL"',
        "mlflow.spanInputs": '{"question": 5}',
        "odd": "{no json",
    },
}
EARLIER = {
    **{key: value for key, value in LATER.items() if key not in ("version", "otel_trace_id")},
    "trace_id": base64.b64encode(bytes.fromhex("0f" * 16)).decode(),
    "span_id": base64.b64encode(bytes.fromhex("0a" * 8)).decode(),
    "parent_span_id": base64.b64encode(bytes.fromhex("0b" * 8)).decode(),
    "status": {"code": "STATUS_CODE_ERROR", "message": "late"},
}
OLD = {
    "name": "chat",
    "context": {"trace_id": "0x" + "0f" * 16, "span_id": "0x" + "0a" * 8},
    "parent_id": "0x" + "0b" * 8,
    "start_time": LATER["start_time_unix_nano"],
    "end_time": LATER["end_time_unix_nano"],
    "status_code": "ERROR",
    "status_message": "late",
    "attributes": LATER["attributes"],
    "events": [
        {"name": "exception", "timestamp": 1795444749144000000, "attributes": {"exception.type": "E"}}
    ],
}


def test_each_form_that_spans_were_kept_in_is_the_same_span() -> None:
    later, earlier, old = (
        artifact_spans(msgspec.json.encode({"spans": [span]})) for span in (LATER, EARLIER, OLD)
    )
    assert later == earlier == old
    (span,) = later
    assert (span["traceId"], span["spanId"], span["parentSpanId"]) == ("0f" * 16, "0a" * 8, "0b" * 8)
    assert span["status"] == {"code": "STATUS_CODE_ERROR", "message": "late"}
    values = {pair["key"]: pair["value"] for pair in span["attributes"]}
    assert values["mlflow.spanType"] == {"stringValue": "CHAT_MODEL"}
    assert values["odd"] == {"stringValue": "{no json"}


@pytest.mark.parametrize(
    "broken", [{"otel_trace_id": ""}, {"span_id": ""}, {"start_time_unix_nano": None}], ids=str
)
def test_a_kept_span_without_what_makes_it_one_is_left_out(broken: dict[str, Any]) -> None:
    span = {**LATER, "trace_id": "", **broken}
    assert artifact_spans(msgspec.json.encode({"spans": [span, LATER]})) == artifact_spans(
        msgspec.json.encode({"spans": [LATER]})
    )


async def test_what_is_not_there_says_so() -> None:
    with pytest.raises(OperatorError, match="no experiment 'gone'"):
        await every_page(MlflowExperiment(Replies(lambda *_: NotThere()), "gone", "app"))
    with pytest.raises(OperatorError, match=r"older than release 3\.5"):
        await every_page(MlflowExperiment(Replies(lambda *_: NotThere()), "1", "app"))
