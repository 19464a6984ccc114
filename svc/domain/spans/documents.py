"""Reading retrieved documents, whatever style they are written in, into one normal form.

Owns: `normal_documents` and `documents_in`. The read side calls them on what a dialect found or on what a
retrieval answered. Never raises over what a client sent, never on the hot path.

The normal form of a document is `{rank, id, score, text, metadata}`, with null for what was not said. Styles
read: OpenTelemetry GenAI, OpenInference, LangChain, plain or serialised, LlamaIndex, vector databases' hits
and rerankers' answers.
"""

from __future__ import annotations

from typing import Any, Final

from svc.domain.spans.messages import text_of
from svc.domain.spans.values import decoded, text

#: More than this were not read by a model.
MAX_DOCUMENTS: Final = 1000
#: How deep wrappers are followed to reach documents.
_DEPTH: Final = 3

_KEPT_UNDER: Final = ("documents", "output", "outputs", "results", "matches", "data", "source_nodes", "hits")
_IDS: Final = ("id", "document_id", "doc_id", "id_", "_id", "originalIndex", "index")
_SCORES: Final = ("score", "relevance_score", "relevanceScore", "similarity", "distance")
_TEXTS: Final = ("content", "page_content", "pageContent", "text", "document", "chunk")
_SIGNS: Final = frozenset({*_SCORES, *_TEXTS, "metadata", "kwargs", "node"})


def documents_in(value: Any, depth: int = _DEPTH) -> list[Any] | None:
    """The documents in a value: a list, as JSON text too, or what an object keeps under a usual key."""
    opened = decoded(value)
    if type(opened) is list:
        return opened if opened and all(_is_document(item) for item in opened[:MAX_DOCUMENTS]) else None
    if type(opened) is dict and depth:
        for key in _KEPT_UNDER:
            if (documents := documents_in(opened.get(key), depth - 1)) is not None:
                return documents
    return None


def _is_document(item: Any) -> bool:
    return type(item) is str or (type(item) is dict and "role" not in item and not _SIGNS.isdisjoint(item))


def normal_documents(documents: list[Any]) -> list[dict[str, Any]]:
    """The documents in normal form, at most 1000, ranked from 1 in their order unless they say a rank."""
    return [_normal(document, rank) for rank, document in enumerate(documents[:MAX_DOCUMENTS], 1)]


def _normal(document: Any, rank: int) -> dict[str, Any]:
    opened = decoded(document)
    if type(opened) is not dict:
        return {"rank": rank, "id": None, "score": None, "text": text_of(document), "metadata": None}
    fields = opened
    for wrapper in ("kwargs", "node"):
        if type(inner := fields.get(wrapper)) is dict:
            fields = {**inner, **fields}
    metadata = decoded(fields.get("metadata"))
    details: dict[str, Any] = metadata if type(metadata) is dict else {}
    # A serialised LangChain document has the path of its class for an id.
    id_ = _first_text(fields, _IDS) or _first_text(details, _IDS)
    score = _score(fields)
    own_rank = fields.get("rank")
    body = next((fields[key] for key in _TEXTS if fields.get(key) not in (None, "")), None)
    if type(body) is dict:
        body = body.get("text") or body.get("content") or body
    return {
        "rank": own_rank if type(own_rank) is int and own_rank >= 0 else rank,
        "id": id_,
        "score": _score(details) if score is None else score,
        "text": text_of(body),
        "metadata": details or None,
    }


def _first_text(fields: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    return next((content for key in keys if (content := text(fields.get(key))) is not None), None)


def _score(fields: dict[str, Any]) -> float | None:
    for key in _SCORES:
        value = fields.get(key)
        if type(value) is str and len(value) <= 32:
            try:
                value = float(value)
            except ValueError:
                continue
        if (type(value) is float or type(value) is int) and abs(value) < 1e15:
            return float(value)
    return None
