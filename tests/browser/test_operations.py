"""Every operation of the specification on keys, settings and cases is done on a page by a test in a browser.

A row names what the specification lets people do, and the test that does it; what stands here and is no test
of this room fails.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import pytest

#: By the headings of the specification; each row with the file of its test and its name.
OPERATIONS: Final = {
    # Resources and states: API keys.
    "create a key of a scope; its plaintext is shown once": "settings: keys_and_tokens_are_made",
    "list keys with scope, prefix and last used, or Never": "settings: keys_and_tokens_are_made",
    "rotate a key: a new secret, the same name and scope": "settings: keys_and_tokens_are_made",
    "revoke a key for good": "settings: keys_and_tokens_are_made",
    "a revoked key is not rotated": "settings: a_key_that_somebody_else_revoked",
    "deleting a project revokes its keys": "settings: a_project_is_named_kept",
    "issue, list and revoke an MCP token": "settings: keys_and_tokens_are_made",
    "read the audit": "settings: keys_and_tokens_are_made",
    "the connect gate mints OTLP ingest on load, another on reload": "walks: a_newcomer_connects_an_exporter",
    "Settings, Sources mints a ready Authorization header": "settings: keys_and_tokens_are_made",
    # Settings endpoints.
    "read and change the sign-up policy: open, domain, invite": "settings: the_policy_admits",
    "a refused sign-up names the rule": "settings: the_policy_admits",
    "a pending invitation admits its address": "settings: people_are_invited",
    "read and replace both terms of retention, or clear them": "settings: a_project_is_named_kept",
    "read the health of ingest": "settings: health_says_of_each_part",
    "model providers and Git, sealed": "settings: integrations_are_added",
    # States: cases.
    "list cases that are open, muted or resolved": "triage: a_case_stands_in_the_list_of_its_state",
    "read a case with its trail, exemplars and report": "triage: pages_of_detection_are_clean",
    "mute a case, and unmute it": "triage: by_keys_alone_from_the_inbox",
    "resolve a case": "triage: a_case_is_resolved_and_reopened",
    "absorb a case": "triage: every_verb_of_a_case",
    "read a finding and its evidence": "triage: pages_of_detection_are_clean",
    "have a case analysed": "triage: every_verb_of_a_case",
    "switch and tune a detector": "triage: a_detector_is_switched_and_tuned",
    # Authentication.
    "sign up, sign in, sign out": "settings: an_account_changes_its_password",
    "make, name and delete a project": "settings: a_project_is_named_kept",
    "members: roles, invitations, removal": "settings: people_are_invited",
    "dead letters: look, replay, discard": "settings: dead_letters_are_looked_at",
    "the taxonomy of failure modes": "settings: a_taxonomy_file_is_previewed",
}


def names_in(file: str) -> list[str]:
    """The names of the tests in a file of this room."""
    tree = ast.parse((Path(__file__).parent / f"test_{file}.py").read_text())
    return [one.name for one in tree.body if isinstance(one, ast.FunctionDef)]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_is_done_by_a_test_that_is_there(operation: str) -> None:
    file, _, begins = OPERATIONS[operation].partition(": ")
    assert [name for name in names_in(file) if name.startswith(f"test_{begins}")]
