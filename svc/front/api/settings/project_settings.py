"""`{p}/retention` and `{p}/taxonomy`: how long a project's data is kept, and its ways to fail."""

from __future__ import annotations

from typing import Final

import attrs

from protocol.refusals import BAD_REQUEST, TAXONOMY_CHANGED, Refusal
from protocol.rest.settings import RetentionChange, RetentionShown, RetentionTerms, TaxonomyCounts
from protocol.taxonomy import BadTaxonomy, Taxonomy, check_taxonomy
from svc.domain.output_schema import check_output_schemas
from svc.domain.retention.terms import Override
from svc.front.api.routes import PROJECT, Route
from svc.front.auth.calls import Call
from svc.store.detection.taxonomy import TaxonomyStore
from svc.store.postgres.database import Connection
from svc.store.retention.sweep import read_override, write_override


def _retention_view(call: Call[object], override: Override) -> RetentionShown:
    defaults = call.means.terms
    return RetentionShown(
        override.traces,
        override.detections,
        RetentionTerms(defaults.traces, defaults.detections),
        RetentionTerms(**attrs.asdict(override.over(defaults))),
    )


async def get_retention(call: Call[None]) -> RetentionShown:
    """How many days the project keeps traces and detections."""
    override = await call.means.database.run(
        lambda connection: read_override(connection, call.project.id), readonly=True
    )
    return _retention_view(call, override)


async def put_retention(call: Call[RetentionChange]) -> RetentionShown:
    """Replace both terms of the project; a null or absent one is the install's default again."""
    override = Override(call.body.traces, call.body.detections)

    async def work(connection: Connection) -> None:
        await write_override(connection, call.project.id, override)
        await call.note(connection, "retention.update", attrs.asdict(override))

    await call.means.database.run(work)
    return _retention_view(call, override)


#: Two thousand ways to fail, each with a page of text.
MAX_TAXONOMY_BYTES: Final = 16 * 1024 * 1024

BAD_TAXONOMY: Final = BAD_REQUEST.saying("the taxonomy cannot be used")


async def put_taxonomy(call: Call[Taxonomy]) -> TaxonomyCounts | Refusal:
    """Replace the project's failure modes, chains, packs, and call sites' intents and output schemas."""
    try:
        check_taxonomy(call.body)
        check_output_schemas(call.body.call_sites)
    except BadTaxonomy as bad:
        return BAD_TAXONOMY.saying(str(bad)[:500])
    return await keep_taxonomy(call)


async def keep_taxonomy(call: Call[Taxonomy], instead_of: Taxonomy | None = None) -> TaxonomyCounts | Refusal:
    """Replace the taxonomy by one that was checked, unless it is not `instead_of` any more."""
    counts = {name: len(getattr(call.body, name)) for name in Taxonomy.__struct_fields__}

    async def noted(connection: Connection) -> None:
        await call.note(connection, "taxonomy.update", counts)

    store = TaxonomyStore(call.means.database)
    if not await store.replace(call.project.id, call.body, noted, instead_of):
        return TAXONOMY_CHANGED
    return TaxonomyCounts(**counts)


ROUTES: Final = (
    Route("GET", PROJECT + "/retention", "ORG_VIEW", get_retention, RetentionShown),
    Route("PUT", PROJECT + "/retention", "ORG_ADMIN", put_retention, RetentionShown, body=RetentionChange),
    Route(
        "PUT",
        PROJECT + "/taxonomy",
        "ORG_MANAGE",
        put_taxonomy,
        TaxonomyCounts,
        body=Taxonomy,
        body_bytes=MAX_TAXONOMY_BYTES,
        refusals=(BAD_TAXONOMY,),
    ),
)
