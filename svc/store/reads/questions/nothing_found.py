"""Why nothing was found, as far as a question's filters tell: values that their fields have never had.

Called where an answer has no rows, by questions, lists and pages. Each value is looked up by its key; the
values of a field are read only where they are few. Never looks at spans.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Final

from protocol.rest.query import FilterValue
from svc.domain.attributes.conventions import PAYLOAD
from svc.domain.queries.datasets import SPANS, Dataset, Field
from svc.domain.spans.messages import PREVIEW_CHARS
from svc.store.postgres.database import READ_TIMEOUT_S, Database
from svc.store.reads.questions.attributes import stored_attribute
from svc.store.reads.questions.questions import filter_text, unknown_values
from svc.store.spans.attribute_codes import OTHER

#: So few values are all named; of more, the nearest one.
_NAMED: Final = 6
#: Values among which the nearest one is looked for.
_READ: Final = 500
_VALUE_CHARS: Final = 60

#: What a text is looked for in, where it was found in none of it.
TEXT_NOTE: Final = (
    f"a text is looked for in names, ids, errors and the first {PREVIEW_CHARS} characters of inputs and"
    f" outputs; the filter '{PAYLOAD}' looks into all that spans said"
)
_AS_THEY_ARE: Final[Mapping[str, str]] = {}
_SITE: Final = "call_site_id"
_MODEL: Final = "model_id"
#: Of a question by `model_id` that meets models which have none.
UNPRICED_NOTE: Final = (
    "model_id has the names of the price book: models without a price are found by provided_model_name"
)

# Whether a value is there, and up to so many others; a field with a value that stands for others tells none.
_VALUES: Final = (
    "(select value from attribute_value where project_id = $1 and field = $2 and value = any(array[$3, $4]))"
    " union all (select value from attribute_value where project_id = $1 and field = $2"
    " order by value limit $5)"
)
_SITES: Final = (
    "(select id as value from call_site where project_id = $1 and id = $2)"
    " union all (select id from call_site where project_id = $1 order by id limit $3)"
)


async def reasons(
    database: Database,
    project_id: int,
    dataset: Dataset,
    filters: Iterable[tuple[Field, FilterValue]],
    *,
    text: str | None = None,
    names: Mapping[str, str] = _AS_THEY_ARE,
) -> list[str]:
    """What is to be said of filters and a text that no row meets. Raises `Outage` and `Slow`.

    `names` are those of fields that whoever asks calls otherwise.
    """
    filters = [*filters]
    notes = [*unknown_values(dataset, filters), *([] if text is None else [TEXT_NOTE])]
    for field, value in filters:
        if value is None:
            continue
        if field.type == "attribute" or field.name == _SITE:
            name = names.get(field.name, field.name)
            notes += await _of_value(database, project_id, field, name, filter_text(value))
        elif dataset is SPANS and field.name == _MODEL:
            notes.append(UNPRICED_NOTE)
    return notes


async def _of_value(database: Database, project_id: int, field: Field, name: str, text: str) -> list[str]:
    if field.name == _SITE:
        rows = await database.fetch(_SITES, *(project_id, text, _READ), timeout_s=READ_TIMEOUT_S)
    else:
        rows = await database.fetch(
            _VALUES, *(project_id, field.name, stored_attribute(text), OTHER, _READ), timeout_s=READ_TIMEOUT_S
        )
    values = [row["value"] for row in rows]
    # A field without any value is one that only payloads tell, or that nobody has sent yet.
    if not values or text in values or OTHER in values:
        return []
    return [f"{name} is never '{text[:_VALUE_CHARS]}'{_instead(text, values)}"]


def _instead(text: str, values: Sequence[str]) -> str:
    if len(values) <= _NAMED:
        return f", only {', '.join(value[:_VALUE_CHARS] for value in values)}"
    folded = {value.casefold(): value for value in values}
    nearest = next(iter(get_close_matches(text.casefold(), folded, n=1, cutoff=0.5)), None)
    return "" if nearest is None else f"; the nearest value is {folded[nearest][:_VALUE_CHARS]}"
