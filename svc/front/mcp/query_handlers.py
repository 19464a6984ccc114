"""The tools that ask the datasets: what can be asked, counts, timeseries, facets and search.

As `svc.front.mcp.handlers`: arguments in, an answer fit for JSON out, one project, nothing written.
"""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec import UNSET

from protocol.rest.answers import Buckets, Compared, Counted, FoundPage, Ranked
from protocol.rest.query import SERIES_DEFAULT, SERIES_MAX, TOP_N_DEFAULT, TOP_N_MAX, page_size
from svc.domain.attributes.conventions import may_need_payloads
from svc.domain.queries.datasets import DATASETS, METRIC_ROLLUPS, SPANS, Dataset, Field
from svc.domain.queries.measures import MEASURES, QueryMeasure
from svc.front.mcp import arguments as a
from svc.front.mcp.given import ToolError, bounds, given, long_limit
from svc.front.mcp.reads import Reads
from svc.store.reads.questions.attributes import promoted_fields
from svc.store.reads.questions.questions import Question, ask
from svc.store.reads.usage.compared_sides import Side, side_of

Answer = dict[str, Any]
_Noted = TypeVar("_Noted", Counted, Buckets, Ranked, FoundPage)


async def describe_dataset(reads: Reads, project_id: int, asked: a.DescribeDataset) -> Answer:
    """What can be asked of the datasets, attributes of the project among it."""
    wanted = list(DATASETS.values()) if asked.dataset is UNSET else [DATASETS[asked.dataset]]
    promoted: list[str] = []
    if reads.extensions and SPANS in wanted:
        promoted = await promoted_fields(reads.queries.database, project_id)
    return {
        "datasets": [
            _described(dataset, promoted if dataset is SPANS else [], extensions=reads.extensions)
            for dataset in wanted
        ]
    }


async def query_count(reads: Reads, project_id: int, asked: a.QueryCountExtended) -> Counted:
    """A count, and a measure beside it."""
    return _specified(reads, await reads.queries.count(await _question(reads, project_id, asked)))


async def query_timeseries(reads: Reads, project_id: int, asked: a.QueryTimeseriesExtended) -> Buckets:
    """Counts and a measure by interval."""
    return _specified(
        reads,
        await reads.queries.timeseries(
            await _question(reads, project_id, asked),
            asked.interval,
            given(asked.group_by),
            page_size(given(asked.top_n), SERIES_DEFAULT, SERIES_MAX),
        ),
    )


async def query_facets(reads: Reads, project_id: int, asked: a.QueryFacetsExtended) -> Ranked:
    """Counts and a measure by value."""
    top_n = page_size(given(asked.top_n), TOP_N_DEFAULT, TOP_N_MAX)
    return _specified(
        reads,
        await reads.queries.facets(
            await _question(reads, project_id, asked), asked.field, top_n, ascending=asked.sort == "ascending"
        ),
    )


async def query_search(reads: Reads, project_id: int, asked: a.QuerySearchExtended) -> FoundPage:
    """A page of rows."""
    return _specified(
        reads,
        await reads.queries.search(
            await _question(reads, project_id, asked),
            given(asked.q),
            given(asked.mode),
            long_limit(asked.limit),
            given(asked.cursor),
        ),
    )


def _specified(reads: Reads, answer: _Noted) -> _Noted:
    """The answer, without notes where the specification is kept to the letter."""
    if not reads.extensions:
        answer.notes = UNSET
    return answer


async def _question(
    reads: Reads,
    project_id: int,
    asked: a.QueryCountExtended | a.QueryTimeseriesExtended | a.QueryFacetsExtended | a.QuerySearchExtended,
) -> Question:
    question = ask(
        project_id,
        asked.dataset,
        bounds(asked.range),
        given(asked.filters),
        by=given(asked.by),
        measure=None if isinstance(asked, a.QuerySearchExtended) else given(asked.measure),
    )
    if not reads.extensions:
        await _require_fields(reads, question)
    return question


async def _require_fields(reads: Reads, question: Question) -> None:
    """Refuse an attribute that is no field: only notes could say how far it was looked for."""
    names = {field.name for field in question.fields if may_need_payloads(field.name)}
    if unknown := names.difference(await promoted_fields(reads.queries.database, question.project_id)):
        raise ToolError(
            f"'{min(unknown)[:120]}' is not a field of this project; describe_dataset names those there are"
        )


def _described(dataset: Dataset, promoted: list[str], *, extensions: bool) -> Answer:
    # Spans have a tool of their own that searches them.
    search = "list_spans" if dataset is SPANS else "query_search" if dataset.searched else None
    description: Answer = {
        "name": dataset.name,
        "time_column": dataset.time_column,
        "measure": "sum of value" if dataset.counted_as == "sum" else "count",
        "facetable_fields": [field.name for field in dataset.fields if _is_facet(field, extensions)]
        + promoted,
        "filterable_fields": [
            field.name for field in dataset.fields if extensions or field.type != "attribute"
        ]
        + promoted,
        "searchable": search == "query_search",
        "search_with": search,
    }
    if extensions and dataset is not METRIC_ROLLUPS:
        description["measures"] = {name: _meaning(MEASURES[name]) for name in dataset.measures}
        description["times"] = list(dataset.times)
    if dataset is METRIC_ROLLUPS:
        description["note"] = "filter granularity (hour or day), or both grains are summed together"
    return description


def _meaning(measure: QueryMeasure) -> str:
    return measure.meaning if measure.unit is None else f"{measure.meaning} ({measure.unit})"


def _is_facet(field: Field, extensions: bool) -> bool:
    """Whether a field is named as a facet: to the letter, those that are counted ahead."""
    return field.facetable and (extensions or field.counted_ahead)


async def compare(reads: Reads, project_id: int, asked: a.Compare) -> Compared:
    """Two populations of traces against each other."""
    return await reads.comparing.compare(project_id, _side(asked.baseline), _side(asked.comparison))


def _side(asked: a.PopulationArguments) -> Side:
    return side_of(*bounds(asked.range), given(asked.filters), given(asked.status), given(asked.failed_spans))
