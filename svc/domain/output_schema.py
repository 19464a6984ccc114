"""What a call site should answer: whether the JSON Schema that its owners wrote is one, and compiling it.

Called by whoever takes a taxonomy, before it is stored, and by tallying. Never follows a reference out of
the schema.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from protocol.taxonomy import BadTaxonomy, CallSiteIntent

if TYPE_CHECKING:
    import jsonschema_rs

#: It is shown wherever its call site is.
MAX_SCHEMA_BYTES: Final = 16 * 1024


def check_output_schemas(sites: Iterable[CallSiteIntent]) -> None:
    """Raises `BadTaxonomy` for a schema that is too large, or none (of any draft; 2020-12 unless told)."""
    # It takes 3 MB, which a service without schemas never needs.
    import jsonschema_rs

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
            reason = str(error).partition("\n")[0]
            raise BadTaxonomy(f"{about} is no JSON Schema: {reason[:300]}") from None


def compiled_schema(text: str) -> jsonschema_rs.Validator | None:
    """A stored schema, ready to check answers; None for one that cannot be used, such as by a reference."""
    import jsonschema_rs

    try:
        return jsonschema_rs.validator_for(msgspec.json.decode(text), retriever=_refused)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError):
        return None


def _refused(uri: str) -> Any:
    raise ValueError("a schema refers to nothing outside of itself")
