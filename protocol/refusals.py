"""The one table of refusals: every code, status and text that a client can be told.

The fronts pick a row and send it; nobody writes such a text anywhere else. Rows marked (spec) are printed
in the interface specification and are used to the letter; the others are settled by the contract, §1.
"""

from __future__ import annotations

from typing import Any, Final

import attrs
import msgspec

from protocol.storage import Outage, Slow
from protocol.tokens import FEEDBACK_PURPOSE, MCP_PURPOSE


@attrs.frozen
class Refusal:
    """An expected "no": an HTTP status, a code, a text, and seconds to wait where waiting helps."""

    status: int
    code: str
    message: str
    details: dict[str, Any] | None = None
    retry_after_s: int | None = None

    def saying(self, message: str, **details: Any) -> Refusal:
        """The same row with a text (and details) that names the offender."""
        return attrs.evolve(self, message=message, details=details or self.details)

    def in_(self, seconds: int) -> Refusal:
        """The same row with the seconds to wait."""
        return attrs.evolve(self, retry_after_s=seconds)

    def body(self) -> bytes:
        """The failure envelope of contract §1, as JSON bytes."""
        error: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.details is not None:
            error["details"] = self.details
        return msgspec.json.encode({"ok": False, "error": error})


# Ingest over HTTP (spec, "Credential errors by surface").
NO_TENANT: Final = Refusal(401, "UNAUTHORIZED", "no tenant context", {"reason": "no bearer token"})
UNKNOWN_KEY: Final = Refusal(401, "UNAUTHORIZED", "no tenant context", {"reason": "unknown key"})
REVOKED_KEY: Final = Refusal(401, "UNAUTHORIZED", "no tenant context", {"reason": "revoked"})
#: What a living key hears that was made for another use alone, by that use.
OTHER_USE: Final = {
    FEEDBACK_PURPOSE: attrs.evolve(NO_TENANT, details={"reason": "a key for feedback alone"}),
    MCP_PURPOSE: attrs.evolve(NO_TENANT, details={"reason": "a key for MCP alone"}),
}
INGEST_NO_PROJECT: Final = Refusal(403, "FORBIDDEN", "OTLP ingest requires a project-scoped token")
# The text of the specification says mcp for what is the scope admin; the details name the scopes.
INGEST_SCOPE: Final = Refusal(
    403,
    "FORBIDDEN",
    "this API key is not scoped for ingest (needs a write or mcp key)",
    {"allowed": ["write", "admin"]},
)
INGEST_DISABLED: Final = Refusal(404, "NOT_FOUND", "OTLP receiver is disabled")

QUOTA_BYTES: Final = Refusal(
    429,
    "RATE_LIMITED",
    "this key has sent more bytes in this minute than SVC_QUOTA_KEY_BYTES_PER_MINUTE allows",
    {"reason": "quota"},
)

# Ingest over gRPC (spec): the texts; the status codes stand in `svc/front/otlp/grpc.py`.
GRPC_NO_TOKEN: Final = "OTLP ingest requires a valid bearer token"  # noqa: S105 - a text, not a secret
GRPC_NO_PROJECT: Final = "OTLP ingest requires a project-scoped token"
GRPC_SCOPE: Final = "OTLP ingest requires a write-scoped token"

METADATA_TOO_LARGE: Final = Refusal(
    431, "METADATA_TOO_LARGE", "the metadata of the call is larger than 16 KiB"
)
DEADLINE_PASSED: Final = Refusal(504, "DEADLINE_EXCEEDED", "the deadline of the call passed")
BAD_GRPC_TIMEOUT: Final = Refusal(
    400, "BAD_REQUEST", "grpc-timeout is not up to eight digits and one of HMSmun"
)

GRPC_COMPRESSION: Final = "the compression is not one of gzip, snappy, zstd"

#: What a gRPC client hears that calls anything but `TraceService/Export`.
GRPC_UNKNOWN: Final = "unknown method; this service accepts traces, by TraceService/Export"
GRPC_OTHER_SIGNALS: Final = {
    f"/opentelemetry.proto.collector.{signal}.v1.{signal.capitalize()}Service/Export": signal
    for signal in ("metrics", "logs")
}
#: What to do about signals that are not accepted; nothing of them is stored.
SIGNAL_REMEDIES: Final = {
    "metrics": "set OTEL_METRICS_EXPORTER=none where they come from",
    "logs": "set OTEL_LOGS_EXPORTER=none where they come from; to see messages that an SDK writes on log"
    " events, have it write them on spans",
}
GRPC_SIGNALS: Final = {
    signal: f"{signal} are not accepted; this service accepts traces, by TraceService/Export: {remedy}"
    for signal, remedy in SIGNAL_REMEDIES.items()
}
#: What a gRPC client hears at the HTTP port.
GRPC_ELSEWHERE: Final = "this is the HTTP port; gRPC is taken at port {port}"
GRPC_OFF: Final = "this is the HTTP port and gRPC is off; SVC_INGEST_OTLP_TRANSPORT=BOTH turns it on"

# Query API (spec).
QUERY_NO_PROJECT: Final = Refusal(403, "FORBIDDEN", "the query API requires a project-scoped token")
QUERY_SCOPE: Final = Refusal(
    403, "FORBIDDEN", "this API key is not scoped for the query API (needs a query or admin key)"
)

# Feedback: the door for what people and programs think of an answer.
FEEDBACK_NO_PROJECT: Final = Refusal(403, "FORBIDDEN", "feedback requires a project-scoped token")
FEEDBACK_SCOPE: Final = Refusal(
    403, "FORBIDDEN", "this API key is not scoped for feedback (needs a feedback, write or admin key)"
)
FEEDBACK_KEY_WRITES: Final = Refusal(400, "BAD_REQUEST", "a key for feedback alone has the scope write")
MCP_KEY_ADMIN: Final = Refusal(400, "BAD_REQUEST", "a key for MCP alone has the scope admin")
NO_SUCH_SET: Final = Refusal(404, "NOT_FOUND", "there is no such set in this project")
NO_SUCH_SET_ENTRY: Final = Refusal(404, "NOT_FOUND", "there is no such entry in this set")
NO_SUCH_FEEDBACK: Final = Refusal(404, "NOT_FOUND", "there is no such feedback in this project")

# MCP (spec): told as JSON-RPC errors, see `svc/front/mcp/endpoint.py`.
MCP_SCOPE: Final = Refusal(403, "FORBIDDEN", "this API key is not scoped for MCP tool access")

# Any `/api/**` path (spec).
API_UNAUTHORIZED: Final = Refusal(401, "auth.unauthorized", "sign in, or send a valid bearer key")
FORBIDDEN: Final = Refusal(403, "FORBIDDEN", "this needs a role that you do not have")
FOREIGN_ORIGIN: Final = Refusal(
    403, "FORBIDDEN", "the request does not come from a page of this service: send its Origin"
)
API_KEY_SCOPE: Final = Refusal(
    403, "FORBIDDEN", "this API key is not scoped for the REST API (needs a query or admin key)"
)
API_KEY_READS: Final = Refusal(
    403, "FORBIDDEN", "this API key may not change this (an admin key may, within its own project)"
)
NO_SUCH_ORG: Final = Refusal(404, "NOT_FOUND", "no such organization")
NO_SUCH_PROJECT: Final = Refusal(404, "NOT_FOUND", "no such project")

# Accounts and sign-in.
# One text for whoever is not admitted: it must not tell which addresses are invited.
SIGNUP_REFUSED: Final = Refusal(
    403,
    "AUTH.SIGNUP_REFUSED",
    "this address can sign up only with an invitation; if you have one, open its link, and ask whoever"
    " invited you, or an owner or admin, for a new one",
)
NO_INVITATION: Final = Refusal(404, "NOT_FOUND", "no invitation of your address is pending")
INVITATION_LINK: Final = Refusal(
    403, "FORBIDDEN", "open the link of the invitation: it proves that the address is yours"
)
NO_MAIL: Final = Refusal(
    409, "CONFLICT", "no mail can be sent here; ask whoever invited you, or an owner or admin, for the link"
)
EMAIL_TAKEN: Final = Refusal(409, "CONFLICT", "this address has an account; sign in")
LOOKS_ALIKE: Final = Refusal(
    409,
    "CONFLICT",
    "this address looks like that of another account; write it in one alphabet",
)
BAD_EMAIL: Final = Refusal(400, "BAD_REQUEST", "email must be an address such as ada@example.org")
BAD_DOMAIN: Final = Refusal(400, "BAD_REQUEST", "domains must be exact domain names")
BAD_CREDENTIALS: Final = Refusal(401, "AUTH.BAD_CREDENTIALS", "the address or the password is wrong")
COMMON_PASSWORD: Final = Refusal(
    400,
    "AUTH.COMMON_PASSWORD",
    "this password is one of the most common ones, which attackers try first; choose another",
)
TOO_MANY_TRIES: Final = Refusal(429, "RATE_LIMITED", "too many tries; wait before the next", retry_after_s=60)
AUTH_DISABLED: Final = Refusal(409, "CONFLICT", "authentication is disabled; there are no accounts")
SSO_OFF: Final = Refusal(404, "NOT_FOUND", "no identity provider is configured")
SSO_FAILED: Final = Refusal(400, "AUTH.SSO_FAILED", "the sign-in at the identity provider did not succeed")
SSO_UNVERIFIED: Final = Refusal(
    403, "AUTH.SSO_UNVERIFIED", "the identity provider does not vouch for your e-mail address"
)
SSO_UNREACHABLE: Final = Refusal(
    503, "UNAVAILABLE", "the identity provider cannot be reached; try again", retry_after_s=5
)
PASSWORDS_OFF: Final = Refusal(
    403, "AUTH.PASSWORDS_OFF", "people sign in through the identity provider here: /auth/sso/login"
)
NO_SUCH_SESSION: Final = Refusal(404, "NOT_FOUND", "no such session")

# Key management (spec); the command line says the same.
UNKNOWN_SCOPE: Final = Refusal(400, "BAD_REQUEST", "unknown key scope '{value}'")
KEY_NOT_FOUND: Final = Refusal(404, "NOT_FOUND", "key not found")
ROTATE_REVOKED: Final = Refusal(409, "CONFLICT", "cannot rotate a revoked key")
BLANK_NAME: Final = Refusal(400, "BAD_REQUEST", "name must not be blank")
KEYS_MINT_NO_KEYS: Final = Refusal(403, "FORBIDDEN", "API keys cannot mint new keys")
TOKENS_MINT_NO_TOKENS: Final = Refusal(403, "FORBIDDEN", "MCP tokens cannot mint new tokens")

# Projects, members, invitations.
BAD_SLUG: Final = Refusal(
    400, "BAD_REQUEST", "slug must be 1 to 50 lower-case letters, digits and inner hyphens"
)
SLUG_TAKEN: Final = Refusal(409, "CONFLICT", "another project has this slug")
NO_PROJECT_ROLE: Final = Refusal(
    400, "BAD_REQUEST", "the role none needs a role in at least one project (projects)"
)
NO_SUCH_MEMBER: Final = Refusal(404, "NOT_FOUND", "no such member")
NO_SUCH_ACCOUNT: Final = Refusal(404, "NOT_FOUND", "nobody has signed up with this address; invite it")
NO_SUCH_INVITATION: Final = Refusal(404, "NOT_FOUND", "no such invitation")
LAST_OWNER: Final = Refusal(409, "CONFLICT", "the last owner cannot leave; make another owner first")
OWNERS_ONLY: Final = Refusal(403, "FORBIDDEN", "only an owner may make, change or remove an owner")
NOTHING_TO_CHANGE: Final = Refusal(400, "BAD_REQUEST", "give a name or a signup_role")
ALREADY_MEMBER: Final = Refusal(409, "CONFLICT", "this address belongs to the organization already")
ALREADY_INVITED: Final = Refusal(409, "CONFLICT", "this address is invited already")

# Who may join: told beside an answer, at the boot and by the doctor.
SIGNUP_UNDECIDED: Final = (
    "nobody has decided yet who may join; until then {who} may sign up and gets the role {role}. "
    "PUT {path} decides, proposed is mode {proposed}"
)
SIGNUP_OPEN: Final = (
    "anyone who can reach this service may sign up (sign-up mode open), and it can be reached from outside; "
    "set mode invite or domain with PUT /api/orgs/{slug}/signup-policy"
)
SIGNUP_UNPROVED: Final = (
    "sign-up mode domain takes addresses at their word: whoever names one at a listed domain is admitted; "
    "set up an identity provider (SSO_ISSUER_URL) and SVC_AUTH_PASSWORDS=false, or use mode invite"
)

# Integrations.
ADDRESS_PRIVATE: Final = (
    "its address is private, of a special use or of this machine; SVC_INTEGRATION_ALLOWED_NETWORKS lists "
    "such networks that may be reached"
)
ADDRESS_NEVER: Final = (
    "its address is link-local, multicast or where a cloud tells machines their credentials: never "
    "connected to, and no setting opens it"
)
ADDRESS_IN_THE_CLEAR: Final = (
    "messages go in the clear (http) only to networks that the operator has listed for it; use https"
)
ADDRESS_NEAR_FOR_ALERTS: Final = (
    "its address is private, of a special use or of this machine; SVC_ALERT_ALLOWED_NETWORKS lists such "
    "networks that may be reached"
)
NO_SUCH_INTEGRATION: Final = Refusal(404, "NOT_FOUND", "no such integration")
BAD_MODEL_BOUNDS: Final = Refusal(
    400,
    "BAD_REQUEST",
    "output_tokens may be half of context_tokens at most: the rest is what the model reads",
)
BAD_REPOSITORY: Final = Refusal(400, "BAD_REQUEST", "the repository cannot be read")
BAD_INTEGRATION: Final = Refusal(400, "BAD_REQUEST", "the integration cannot be used as it is")
TAXONOMY_CHANGED: Final = Refusal(
    409, "CONFLICT", "somebody else has changed the taxonomy meanwhile; look at it again"
)
INTEGRATION_TAKEN: Final = Refusal(409, "CONFLICT", "another integration of this kind has this name")
TOO_MANY_INTEGRATIONS: Final = Refusal(409, "CONFLICT", "the organization has as many as it may; remove one")

# Alerts.
NO_SUCH_CHANNEL: Final = Refusal(404, "NOT_FOUND", "no such alert channel")
NO_SUCH_RULE: Final = Refusal(404, "NOT_FOUND", "no such alert rule")
NO_SUCH_DELIVERY: Final = Refusal(404, "NOT_FOUND", "no such alert delivery")
BAD_CHANNEL: Final = Refusal(400, "BAD_REQUEST", "the alert channel cannot be used as it is")
BAD_RULE: Final = Refusal(400, "BAD_REQUEST", "the alert rule cannot be used as it is")
CHANNEL_TAKEN: Final = Refusal(409, "CONFLICT", "another alert channel has this name")
RULE_TAKEN: Final = Refusal(409, "CONFLICT", "another alert rule has this name")
TOO_MANY_CHANNELS: Final = Refusal(409, "CONFLICT", "the project has as many alert channels as it may")
TOO_MANY_RULES: Final = Refusal(409, "CONFLICT", "the project has as many alert rules as it may")
CHANNEL_KEEPS_KIND: Final = Refusal(409, "CONFLICT", "a channel keeps its kind; add another one")
NOTHING_TO_ROTATE: Final = Refusal(409, "CONFLICT", "only a webhook has a secret of ours that can be rotated")
NO_SUCH_CHART: Final = Refusal(404, "NOT_FOUND", "no such kept chart")
BAD_CHART: Final = Refusal(400, "BAD_REQUEST", "the chart cannot be kept as it is")
CHART_KEPT: Final = Refusal(409, "CONFLICT", "this chart is on Overview already")
TOO_MANY_CHARTS: Final = Refusal(409, "CONFLICT", "Overview holds as many charts as it may")
DELIVERY_WAITS: Final = Refusal(409, "CONFLICT", "the message waits to be sent already")
DELIVERY_LEADS_NOWHERE: Final = Refusal(
    409, "CONFLICT", "its channel is gone, or off because its receiver said that it is gone"
)

# Everywhere.
NOT_FOUND: Final = Refusal(404, "NOT_FOUND", "no such path")
TRACES_PATH: Final = NOT_FOUND.saying("no such path; traces are taken at /v1/traces", path="/v1/traces")
#: Signals that exporters send by default beside traces, by the path of OTLP/HTTP.
OTHER_SIGNALS: Final = {
    f"/v1/{signal}": NOT_FOUND.saying(
        f"{signal} are not accepted; this service accepts traces, at /v1/traces: {remedy}", path="/v1/traces"
    )
    for signal, remedy in SIGNAL_REMEDIES.items()
}
METHOD_NOT_ALLOWED: Final = Refusal(405, "METHOD_NOT_ALLOWED", "method not allowed")
BAD_REQUEST: Final = Refusal(400, "BAD_REQUEST", "the request cannot be read")
#: Of two, one reader takes the first and another the last.
TWO_AUTHORIZATIONS: Final = BAD_REQUEST.saying("the request has more than one Authorization header; send one")
PAYLOAD_TOO_LARGE: Final = Refusal(413, "PAYLOAD_TOO_LARGE", "the body is larger than this server takes")
UNSUPPORTED_MEDIA_TYPE: Final = Refusal(415, "UNSUPPORTED_MEDIA_TYPE", "the content type is not supported")
BODY_TIMEOUT: Final = Refusal(408, "REQUEST_TIMEOUT", "the body did not arrive in time")
#: What is told of JSON with a surrogate that has no pair.
HALF_CHARACTER: Final = "a text in it holds half of a character: {escape}, a surrogate without its pair"
#: What is told of a body that was not read to its end, by the status of it.
UNREAD_BODIES: Final = {refusal.status: refusal for refusal in (PAYLOAD_TOO_LARGE, BODY_TIMEOUT)}
INTERNAL: Final = Refusal(500, "INTERNAL", "something went wrong on our side; the log names it")
UNAVAILABLE: Final = Refusal(
    503, "UNAVAILABLE", "the service cannot answer right now; try again", retry_after_s=2
)
TOO_SLOW: Final = Refusal(
    503,
    "UNAVAILABLE",
    "the answer took too long; ask for less, such as a shorter range, or try again later",
)
#: Of the plain port beside TLS.
USE_HTTPS: Final = Refusal(
    403, "FORBIDDEN", "use https: what this request carried was sent in the clear; replace its token"
)
STOPPING: Final = Refusal(503, "UNAVAILABLE", "the service is stopping; try again", retry_after_s=5)

# Detectors, findings, cases; the command line says the same.
NO_SUCH_DETECTOR: Final = Refusal(404, "NOT_FOUND", "there is no classifier of this name")
NO_SUCH_MARK: Final = Refusal(404, "NOT_FOUND", "there is no mark of this name")
NO_TOOL_RATES: Final = Refusal(404, "NOT_FOUND", "only tool_error has tool error rates")
DETECTOR_UNAVAILABLE: Final = Refusal(
    409, "DETECTOR_UNAVAILABLE", "this classifier cannot run here: it {reason}"
)
NOT_TUNABLE: Final = Refusal(422, "NOT_TUNABLE", "this classifier has no tunable '{name}'; it has: {names}")
NO_BACKTEST: Final = Refusal(
    422, "NO_BACKTEST", "one event is enough for this classifier, so there is nothing to run again"
)
NO_SUCH_FINDING: Final = Refusal(404, "NOT_FOUND", "no such finding")
NO_SUCH_RUN: Final = Refusal(404, "NOT_FOUND", "no such run of an agent")
NO_SUCH_REPORT: Final = Refusal(404, "NOT_FOUND", "no such report")
RUN_IS_OVER: Final = Refusal(409, "CONFLICT", "the run is over")
AGENTS_OFF: Final = Refusal(
    409, "CONFLICT", "agents are off: without authentication there is no key that opens a project to them"
)
NO_RUNNER: Final = Refusal(
    409,
    "CONFLICT",
    "no sandbox runner answers at {url}; start one: docker compose --profile agents up -d, or"
    " trace-svc sandbox-runner where SVC_OBSERVER_AGENTIC_LAUNCHER_URL leads",
)
NO_SUCH_CASE: Final = Refusal(404, "NOT_FOUND", "no such case")
REASON_REQUIRED: Final = Refusal(400, "REASON_REQUIRED", "say why: reason must not be blank")
ALREADY_RESOLVED: Final = Refusal(409, "ALREADY_RESOLVED", "it is resolved already")
ALREADY_MUTED: Final = Refusal(409, "ALREADY_MUTED", "it is muted already")
NOT_MUTED: Final = Refusal(409, "NOT_MUTED", "it is not muted")
NOT_RESOLVED: Final = Refusal(409, "NOT_RESOLVED", "it is not resolved")
NOT_ABSORBABLE: Final = Refusal(
    409, "NOT_ABSORBABLE", "nothing here compares with a usual value that could move; resolve it instead"
)
SUPERSEDED: Final = Refusal(409, "CONFLICT", "its cause is live in another case")
NOT_DECIDED: Final = Refusal(409, "CONFLICT", "nobody closed it, so there is nothing to take back")
CASE_RESOLVED: Final = Refusal(
    409, "CONFLICT", "it closed with its case {case}; reopen that on its page, {page}"
)
FINDING_SUPERSEDED: Final = Refusal(409, "CONFLICT", "its cause is live in another finding")
OVERRULED: Final = Refusal(409, "CONFLICT", "somebody of a higher rank has decided already")
#: What the stores of findings and of cases say no with, as people hear it.
FINDING_REFUSALS: Final = {
    "NOT_FOUND": NO_SUCH_FINDING,
    "CLOSED": ALREADY_RESOLVED,
    "OVERRULED": OVERRULED,
    "NOT_ABSORBABLE": NOT_ABSORBABLE,
    "NOT_DECIDED": NOT_DECIDED,
    "CASE_RESOLVED": CASE_RESOLVED,
    "SUPERSEDED": FINDING_SUPERSEDED,
}
CASE_REFUSALS: Final = {
    "NOT_FOUND": NO_SUCH_CASE,
    "REASON_REQUIRED": REASON_REQUIRED,
    "ALREADY_RESOLVED": ALREADY_RESOLVED,
    "ALREADY_MUTED": ALREADY_MUTED,
    "NOT_MUTED": NOT_MUTED,
    "NOT_RESOLVED": NOT_RESOLVED,
    "NOT_ABSORBABLE": NOT_ABSORBABLE,
    "SUPERSEDED": SUPERSEDED,
}
MUTE_IN_THE_PAST: Final = Refusal(400, "BAD_REQUEST", "'until' must be an instant to come")
BACKTEST_RUNNING: Final = Refusal(
    429, "RATE_LIMITED", "other backtests are running; ask again", retry_after_s=5
)
BILL_COMPARED: Final = Refusal(
    429, "RATE_LIMITED", "another bill is being compared; ask again", retry_after_s=5
)
BILL_TOO_WIDE: Final = Refusal(
    400, "BAD_REQUEST", "there are too many models and call sites in these days; compare fewer days at once"
)

# Ingest pressure (spec, "Other"; contract §2).
SPOOL_FULL: Final = Refusal(503, "UNAVAILABLE", "the ingest buffer is full; try again", retry_after_s=2)
DISK_FULL: Final = Refusal(
    503, "UNAVAILABLE", "the disk budget is used up; nothing is stored until there is room", retry_after_s=5
)
NEVER_FITS: Final = PAYLOAD_TOO_LARGE.saying("the batch is larger than the whole ingest buffer")
#: What stands above its limit, and the setting that says how much it may be.
_OVER_LIMIT: Final = {
    "spans": ("the body holds more than {bound} spans", "SVC_INGEST_MAX_SPANS"),
    "groups": ("the body holds more than {bound} resource_spans and scope_spans", "SVC_INGEST_MAX_GROUPS"),
    "entries": ("the spans of the body hold more than {bound} attributes, events and links",
                "SVC_INGEST_MAX_ENTRIES"),
    "attributes": ("a span of the body holds more than {bound} attributes", "SVC_INGEST_MAX_SPAN_ATTRIBUTES"),
    "events": ("a span of the body holds more than {bound} events", "SVC_INGEST_MAX_SPAN_EVENTS"),
    "links": ("a span of the body holds more than {bound} links", "SVC_INGEST_MAX_SPAN_LINKS"),
    "values": ("a span of the body holds more than {bound} values", "SVC_INGEST_MAX_SPAN_VALUES"),
    "depth": ("a value of the body lies in more than {bound} arrays and maps", "SVC_INGEST_MAX_DEPTH"),
}  # fmt: skip


def over_limit(limit: str, bound: int) -> Refusal:
    """The refusal of a body that holds more than a limit allows; it names the limit and its setting."""
    what, setting = _OVER_LIMIT[limit]
    return PAYLOAD_TOO_LARGE.saying(
        f"{what.format(bound=bound)}; {setting} is the limit", setting=setting, limit=bound
    )


ALL_REFUSED: Final = BAD_REQUEST.saying("no span in the batch can be stored")

# Query bodies (contract §1 and §4).
UNKNOWN_DATASET: Final = Refusal(400, "QUERY.UNKNOWN_DATASET", "unknown dataset '{value}'")
UNKNOWN_FIELD: Final = Refusal(400, "QUERY.UNKNOWN_FIELD", "unknown field '{field}' for dataset '{dataset}'")
UNKNOWN_INTERVAL: Final = Refusal(400, "QUERY.UNKNOWN_INTERVAL", "unknown interval '{value}'")
UNKNOWN_MEASURE: Final = Refusal(
    400, "QUERY.UNKNOWN_MEASURE", "unknown measure '{measure}' for dataset '{dataset}'"
)
UNKNOWN_TIME: Final = Refusal(400, "QUERY.UNKNOWN_TIME", "unknown time '{value}' for dataset '{dataset}'")
INVALID_RANGE: Final = Refusal(400, "QUERY.INVALID_RANGE", "the range cannot be used")
SEARCH_UNSUPPORTED: Final = Refusal(
    400, "QUERY.SEARCH_UNSUPPORTED", "dataset '{dataset}' does not support search"
)

Q_TOO_LONG: Final = Refusal(400, "BAD_REQUEST", "'q' has {length} characters; at most {most} are taken")

# Questions of one key at once, and payloads.
TOO_MANY_QUESTIONS: Final = Refusal(
    429,
    "RATE_LIMITED",
    "{who} has {most} questions under way, which is as many as it may (SVC_QUESTIONS_PER_KEY); ask again"
    " when one is answered",
    retry_after_s=1,
)
TOO_MANY_PAYLOADS: Final = Refusal(
    429, "RATE_LIMITED", "other payloads are on their way out; ask again", retry_after_s=2
)
NO_PAYLOAD: Final = Refusal(
    404, "NOT_FOUND", "there is no such span in this project, or its payload has aged out"
)
PAYLOAD_HOLDS_TOO_MUCH: Final = Refusal(
    413, "PAYLOAD_TOO_LARGE", "the payload of this span holds more than this server reads back"
)

# Dead letters.
NO_SUCH_LETTER: Final = Refusal(
    404, "NOT_FOUND", "there is no such dead letter in this project; it may have been replayed"
)
NO_SUCH_ERASURE: Final = Refusal(404, "NOT_FOUND", "there is no such erasure in this project")
TOO_MANY_ERASURES: Final = Refusal(
    429, "RATE_LIMITED", "too many erasures wait in this project; ask again when some are done"
)
NO_LETTER_CHOSEN: Final = Refusal(400, "BAD_REQUEST", "say which letters: ids, a reason, or all")
LETTER_TOO_LARGE: Final = Refusal(
    413, "PAYLOAD_TOO_LARGE", "{size} MiB are not opened here; trace-svc dead-letters show prints them"
)
NO_BROKER: Final = Refusal(409, "CONFLICT", "only in broker mode do dead letters lie elsewhere")

# Answers of the tools (contract §5): told as texts of tool errors and as JSON-RPC errors.
ANSWER_TOO_LARGE: Final = (
    "the answer would be larger than {most_mib} MiB; narrow the question, or ask for a smaller page"
)
BATCH_FULL: Final = "the answers of this batch fill their {most_mib} MiB; ask this one alone"
BATCH_TOO_SLOW: Final = "the batch took longer than {seconds} s; ask this one in another"


class Refused(Exception):
    """Carries a refusal out of the depth of one request; the front that serves the request catches it."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


def refusal_of(outage: Outage) -> Refusal:
    """What is told whose question the database did not answer: to come again at once helps if it is away."""
    return TOO_SLOW if isinstance(outage, Slow) else UNAVAILABLE
