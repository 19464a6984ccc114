"""What of an agent's answer counts: its form, what it cites, its numbers, and what may not stand in it.

`faults` says what is wrong with an answer, so that its agent can mend it; `tidied` takes out what nobody may
read; `grounded` is what the service leaves of a report that cites. Called by the runner, which knows what was
shown to the run, and again by the service, which trusts no runner. Pure.

An answer is a stranger's text: it was written by a model that read what strangers sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from typing import Any, Final

import attrs

from protocol.agents import RunKind
from svc.domain.agents.schemas import SCHEMAS, SUMMARY_CHARS
from svc.domain.detect.secrets.search import masked

#: Faults that are reported at once.
FAULTS_TOLD: Final = 8
#: Numbers that are looked up, and marked, at most.
NUMBERS: Final = 200

_HEX: Final = re.compile(r"\b(?:[0-9a-f]{32}|[0-9a-f]{16})\b", re.ASCII)
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")
_IMAGE: Final = re.compile(r"!\[([^\]]*)\]\([^)]*\)")
_LINK: Final = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_ADDRESS: Final = re.compile(r"\b(?:https?|ftp|data|javascript|file):[^\s)>\]]+", re.IGNORECASE)
_NUMBER: Final = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?![\w])", re.ASCII)
_MOMENT: Final = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?Z?|\b\d\d:\d\d(?::\d\d)?\b"
)
#: What stands in the place of a secret.
_HIDDEN: Final = re.compile(r"\[[^\]]*characters\]")
#: Counts of a handful are words.
_SMALL: Final = 10


@attrs.frozen
class ShownEvidence:
    """What a run was shown: ids it may cite, and refs with their texts; `failed` are scripts that did not end
    well.
    """

    ids: AbstractSet[str]
    refs: Mapping[str, str] = attrs.field(repr=False)
    failed: AbstractSet[str] = frozenset()
    #: What it was given to begin with, beside its tools.
    files: Sequence[str] = attrs.field(default=(), repr=False)


@cache
def _validator(kind: RunKind) -> Any:
    # It takes 3 MB, which a service without agents never needs.
    import jsonschema_rs

    return jsonschema_rs.validator_for(dict(SCHEMAS[kind]))


def form_faults(kind: RunKind, answer: Any) -> list[str]:
    """Where an answer is not of its form."""
    complaints = []
    for error in _validator(kind).iter_errors(answer):
        path = "/".join(str(step) for step in error.instance_path) or "the answer"
        complaints.append(f"{path}: {error.message}"[:300])
        if len(complaints) == FAULTS_TOLD:
            break
    return complaints


def ids_in(text: str) -> set[str]:
    """The ids of traces and spans that a text names."""
    return set(_HEX.findall(text))


def citations_of(answer: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Every citation of an answer of its form."""
    yield from answer.get("citations", ())
    for part in (*answer.get("checklist", ()), *answer.get("hypotheses", ())):
        yield from part["citations"]


def faults(kind: RunKind, answer: Any, evidence: ShownEvidence, checklist: Sequence[str]) -> list[str]:
    """What is wrong with an answer, for the agent that wrote it; at most `FAULTS_TOLD`."""
    complaints = form_faults(kind, answer)
    if complaints:
        return complaints
    for citation in citations_of(answer):
        if citation["kind"] in ("trace", "span"):
            if citation["id"] not in evidence.ids:
                complaints.append(
                    f"{citation['kind']} {citation['id'][:40]!r} was not shown to you:"
                    " cite what a tool returned"
                )
        elif citation["id"] not in evidence.refs:
            complaints.append(f"there is no ref {citation['id'][:40]!r}: cite q… or s… of this run")
        elif citation["id"] in evidence.failed:
            complaints.append(f"{citation['id']} failed: cite a script that ended with exit code 0")
    for hypothesis in answer.get("hypotheses", ()):
        for id_ in hypothesis["evidence_trace_ids"]:
            if id_ not in evidence.ids:
                complaints.append(
                    f"trace {id_[:40]!r} was not shown to you: evidence is what a tool returned"
                )
    checks = set(checklist)
    for check in answer.get("checklist", ()):
        if check["check"] not in checks:
            complaints.append(
                f"the checklist has no {check['check'][:60]!r}: answer the checks you were given"
            )
    return list(dict.fromkeys(complaints))[:FAULTS_TOLD]


def tidied(answer: Mapping[str, Any], literal: Iterable[str] = ()) -> dict[str, Any]:
    """The answer without secrets, control characters, links and images, at any depth.

    `literal` are texts that must not stand in it whatever they look like: the run's own credentials.
    """
    hidden = [text for text in literal if len(text) >= 8]
    plain: dict[str, Any] = _tidy(dict(answer), hidden)
    return plain


def _tidy(value: Any, hidden: Sequence[str]) -> Any:
    if isinstance(value, str):
        return tidied_text(value, hidden)
    if isinstance(value, list):
        return [_tidy(element, hidden) for element in value]
    if isinstance(value, dict):
        return {name: _tidy(field, hidden) for name, field in value.items()}
    return value


def tidied_text(text: str, hidden: Iterable[str] = ()) -> str:
    """One text without them."""
    for secret in hidden:
        text = text.replace(secret, "[hidden]")
    text = _CONTROL.sub("", text)
    text = _LINK.sub(r"\1", _IMAGE.sub(r"\1", text))
    return masked(_ADDRESS.sub("[link removed]", text))


def completed(answer: Mapping[str, Any], checklist: Sequence[str]) -> dict[str, Any]:
    """A report with an entry for each check, in the dossier's order; those that are missing are unknown."""
    entries = {check["check"]: check for check in answer["checklist"]}
    placeholder = {"assessment": "unknown", "detail": "The agent said nothing of it.", "citations": []}
    return {**answer, "checklist": [entries.get(name, {"check": name, **placeholder}) for name in checklist]}


def unsupported(kind: RunKind, answer: Mapping[str, Any], evidence: ShownEvidence) -> list[str]:
    """The numbers of an answer that stand in nothing it cites, nor in what it was given to begin with."""
    cited_refs = {citation["id"] for citation in citations_of(answer)}
    sources = [text for ref, text in evidence.refs.items() if ref in cited_refs]
    # Whoever cites a trace has read it in some result.
    ids = cited_refs & evidence.ids
    sources += [text for text in evidence.refs.values() if ids and any(id_ in text for id_ in ids)]
    known_digits: set[str] = set()
    for text in (*sources, *evidence.files):
        known_digits |= {_digits(number) for number in _NUMBER.findall(_MOMENT.sub(" ", text))}
    numbers = []
    for text in _prose(kind, answer):
        for number in _NUMBER.findall(_MOMENT.sub(" ", _HIDDEN.sub(" ", _HEX.sub(" ", text))))[:NUMBERS]:
            value = float(number.replace(",", ""))
            if value <= _SMALL and value == int(value):
                continue
            if not {_digits(number), _digits(str(value / 100)), _digits(str(value * 100))} & known_digits:
                numbers.append(number)
    return list(dict.fromkeys(numbers))[:NUMBERS]


def _digits(text: str) -> str:
    """A number by its first three significant digits: whoever quotes rounds."""
    return f"{float(text.replace(',', '')):.3g}"


def _prose(kind: RunKind, answer: Mapping[str, Any]) -> Iterator[str]:
    yield answer["summary"]
    if kind == "rca":
        for check in answer["checklist"]:
            yield check["detail"]
        for hypothesis in answer["hypotheses"]:
            yield hypothesis["rationale"]
        yield answer["detailed_report"]


def cited_ids(answer: Mapping[str, Any]) -> set[str]:
    """The ids of traces and spans that an answer cites or names as evidence."""
    ids = {citation["id"] for citation in citations_of(answer) if citation["kind"] in ("trace", "span")}
    return ids.union(
        *(set(hypothesis["evidence_trace_ids"]) for hypothesis in answer.get("hypotheses", ())), set()
    )


def grounded(
    answer: Mapping[str, Any],
    *,
    existing: AbstractSet[str],
    evidence: AbstractSet[str],
    before: AbstractSet[str],
) -> dict[str, Any]:
    """What the service leaves of an answer that it can look up.

    Ids that are not (any more) in the project are cited by nobody. A hypothesis keeps the traces of the
    finding's `evidence`, and falls without anything to stand on. A change of behaviour or traffic is told
    by a comparison: without an id of `before` it is inconclusive.
    """
    ids = cited_ids(answer)
    report = {
        **answer,
        **({"citations": _existing(answer["citations"], existing)} if "citations" in answer else {}),
    }
    if "hypotheses" not in answer:
        return report
    report["checklist"] = [
        {**check, "citations": _existing(check["citations"], existing)} for check in answer["checklist"]
    ]
    report["hypotheses"] = [
        entry
        for hypothesis in answer["hypotheses"]
        if (
            entry := {
                **hypothesis,
                "evidence_trace_ids": [id_ for id_ in hypothesis["evidence_trace_ids"] if id_ in evidence],
                "citations": _existing(hypothesis["citations"], existing),
            }
        )["evidence_trace_ids"]
        or entry["citations"]
    ]
    if answer["verdict"] in ("traffic_shift", "behavior_change") and not ids & before:
        note = f"The agent said {answer['verdict']}, but cites nothing of before the onset. "
        report["verdict"] = "inconclusive"
        report["summary"] = (note + answer["summary"])[: SUMMARY_CHARS["rca"]]
    return report


def _existing(citations: Iterable[Mapping[str, Any]], existing: AbstractSet[str]) -> list[Mapping[str, Any]]:
    return [
        citation
        for citation in citations
        if citation["kind"] in ("query", "script") or citation["id"] in existing
    ]
