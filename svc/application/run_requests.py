"""What a run of an agent is asked, the key it works with, and what its answer counts for.

The launcher calls it, under the lease of a run. Whose model answers and which repository is read are the
project's own settings; a brief is written and an answer judged by the rules of `svc.domain.agents`.

Secrets: an integration's secret is opened at the claim and handed to one request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final, cast

import attrs
import msgspec

from protocol.agents import PURPOSES, RUN_TOOLS, ParkedFor, RunLease
from protocol.running import Credential, McpPlace, Provider, RepoPlace, RunRequest
from protocol.sealed import Lost
from protocol.storage import Eviction
from svc.application.run_surroundings import RunSurroundings
from svc.domain.agents.answers import cited_ids, completed, form_faults, grounded, tidied, tidied_text
from svc.domain.agents.briefs import brief_of
from svc.domain.agents.repositories import GIT_USERS, is_hosted_by
from svc.runtime.clock import now
from svc.secrets.sealing import Sealer
from svc.store.accounts.audit import SYSTEM as ACTOR
from svc.store.accounts.integrations import Integration
from svc.store.accounts.keys import PostgresKeyStore
from svc.store.agents.claims import ClaimReads
from svc.store.agents.runs import PostgresRunStore
from svc.store.postgres.database import Database

#: A key of a run lives this much longer than the run may take.
KEY_S: Final = 300.0
#: What a runner may note of how an answer came about.
NOTE_CHARS: Final = 300


@attrs.frozen
class StoredRunRequests:
    """Implements `RunRequests`. `mcp_url` says where the runner reaches this service; `evict` forgets a key
    here."""

    database: Database
    keys: PostgresKeyStore
    seals: Sealer
    mcp_url: Callable[[], str]
    evict: Callable[[Eviction], None]

    async def request(self, lease: RunLease) -> RunRequest | ParkedFor | str:
        """What the run is asked, without a key of the project."""
        reads = ClaimReads(self.database)
        facts = await reads.facts(lease)
        if facts is None:
            return "what it is about is gone"
        choice = lease.settings.models.get(lease.kind)
        credential = Credential()
        if choice is not None:
            integration = await reads.integration(lease, choice.integration_id)
            if integration is None:
                return "no_provider"
            secret = self._opened(integration)
            if isinstance(secret, Lost):
                return "rejected_credential"
            credential = Credential(
                cast(Provider, integration.provider),
                integration.base_url,
                integration.region,
                integration.username,
                secret,
            )
        limits = lease.limits
        if choice is not None:
            limits = limits.of_model(choice.output_tokens, choice.context_tokens)
        repo = await self._repo(lease, reads, facts.finding)
        brief = brief_of(
            lease.kind,
            facts.finding,
            facts.refs,
            limits,
            facts.rule_report,
            await RunSurroundings(self.database).of(lease.project_id, facts.finding),
            repository=repo is not None,
        )
        return RunRequest(
            kind=lease.kind,
            files=dict(brief.files),
            system_prompt=brief.system_prompt,
            prompt=brief.prompt,
            json_schema=dict(brief.json_schema),
            model=None if choice is None else choice.model,
            credential=credential,
            mcp=McpPlace(self.mcp_url(), "", RUN_TOOLS),
            limits=limits,
            checklist=tuple(brief.checklist),
            known_ids=tuple(brief.known_ids),
            repo=repo,
        )

    def _opened(self, integration: Integration) -> str | Lost | None:
        return (
            None if integration.sealed is None else self.seals.open(integration.sealed, integration.purpose)
        )

    async def _repo(self, lease: RunLease, reads: ClaimReads, finding: Mapping[str, Any]) -> RepoPlace | None:
        """The project's repository, for whoever looks for a cause. A credential goes to its own host only."""
        choice = lease.settings.repository
        if choice is None or lease.kind != "rca":
            return None
        location = RepoPlace(
            choice.clone_url, choice.ref, onset_at=str(finding.get("onset_at") or "") or None
        )
        if choice.integration_id is None:
            return location
        integration = await reads.integration(lease, choice.integration_id)
        if integration is None or not is_hosted_by(
            choice.clone_url, integration.provider, integration.base_url
        ):
            return location
        secret = self._opened(integration)
        username = integration.username or GIT_USERS.get(integration.provider)
        return msgspec.structs.replace(
            location, username=username, secret=None if isinstance(secret, Lost) else secret
        )

    async def mint(self, lease: RunLease, request: RunRequest) -> tuple[str, RunRequest]:
        """A key that reads the project until shortly after the run's deadline."""
        until = now() + timedelta(seconds=lease.limits.seconds + KEY_S)
        creation = await self.keys.create(
            lease.project_id,
            f"agent run {lease.name}",
            "admin",
            actor=ACTOR,
            purpose=PURPOSES[lease.kind],
            expires_at=until,
        )
        await PostgresRunStore(self.database).holds_key(lease, creation.key.id)
        mcp = msgspec.structs.replace(request.mcp, token=creation.plaintext)
        return creation.key.id, msgspec.structs.replace(request, mcp=mcp)

    async def revoke(self, lease: RunLease, key_id: str) -> None:
        """The key opens nothing any more, here at once and elsewhere when they hear."""
        await self.keys.revoke(lease.project_id, key_id, actor=ACTOR, purpose=PURPOSES[lease.kind])
        self.evict(Eviction(key_id=key_id))

    async def sweep(self) -> int:
        """Revoke keys that nobody came to revoke."""
        return await self.keys.sweep()

    async def checked(
        self, lease: RunLease, request: RunRequest, result: Mapping[str, Any]
    ) -> Mapping[str, Any] | str:
        """The answer as it counts: of its form, on what can be looked up."""
        answer = {name: value for name, value in result.items() if name not in ("unsupported", "notes")}
        faults = form_faults(lease.kind, answer)
        if faults:
            return faults[0]
        marked, noted = result.get("unsupported"), result.get("notes")
        answer = tidied(answer)
        if lease.kind == "rca":
            answer = completed(answer, request.checklist)
        cited = await ClaimReads(self.database).look_up(lease, _plausible(cited_ids(answer)))
        answer = grounded(answer, existing=cited.existing, evidence=cited.evidence, before=cited.before)
        if lease.kind == "triage" and answer["verdict"] != "unclear" and not answer["citations"]:
            return "nothing it cites is in the project"
        numbers = [str(number)[:40] for number in marked[:200]] if isinstance(marked, list) else []
        notes = [tidied_text(str(note)[:NOTE_CHARS]) for note in noted[:4]] if isinstance(noted, list) else []
        return {**answer, "unsupported": numbers, "notes": notes}


def _plausible(ids: set[str]) -> list[str]:
    return [id_ for id_ in ids if len(id_) in (16, 32) and set(id_) <= set("0123456789abcdef")]
