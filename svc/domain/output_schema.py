"""What a call site should answer: whether the JSON Schema that its owners wrote is one.

Called by whoever takes a taxonomy, before it is stored. Never follows a reference out of the schema.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import jsonschema_rs
import msgspec

from protocol.taxonomy import BadTaxonomy, CallSiteIntent

#: It is shown wherever its call site is.
MAX_SCHEMA_BYTES: Final = 16 * 1024


def check_output_schemas(sites: Iterable[CallSiteIntent]) -> None:
    """Raises `BadTaxonomy` for a schema that is too large, or none (of any draft; 2020-12 unless told)."""
    for site in sites:
        schema = site.output_schema
        if schema is None:
            continue
        about = f"the output_schema of call site {site.id!r}"
        if len(msgspec.json.encode(schema)) > MAX_SCHEMA_BYTES:
            raise BadTaxonomy(f"{about} is larger than {MAX_SCHEMA_BYTES} bytes")
        try:
            jsonschema_rs.meta.validate(schema)
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
            said = str(error).partition("\n")[0]
            raise BadTaxonomy(f"{about} is no JSON Schema: {said[:300]}") from None
