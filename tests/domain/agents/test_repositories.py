"""Which repositories may be named, and whose credential opens them."""

from __future__ import annotations

import pytest

from protocol.agents import DEFAULT_LIMITS
from protocol.running import Credential, McpPlace, RepoPlace, RunRequest
from svc.domain.agents.repositories import is_hosted_by, repository_fault


@pytest.mark.parametrize(
    ("url", "ref", "fine"),
    [
        ("https://github.com/you/shop", None, True),
        ("https://git.example.org:8443/team/shop.git", "release/4.2", True),
        ("https://[fd00::1]/shop", "v1.0+hotfix_1", True),
        ("http://github.com/you/shop", None, False),
        ("ssh://git@github.com/you/shop", None, False),
        ("git@github.com:you/shop", None, False),
        ("file:///srv/shop", None, False),
        ("ext::sh -c id", None, False),
        ("https://github.com", None, False),
        ("https://you:secret@github.com/you/shop", None, False),
        ("https://you@github.com/you/shop", None, False),
        ("https://github.com/you/shop?token=x", None, False),
        ("https://github.com/you/shop#x", None, False),
        ("https://github.com/you/sh op", None, False),
        ("https://github.com:99999/you/shop", None, False),
        ("https://[::1/shop", None, False),
        ("https://github.com/you/shop", "--upload-pack=id", False),
        ("https://github.com/you/shop", "main..other", False),
        ("https://github.com/you/shop", "main:refs/heads/x", False),
        ("https://github.com/you/shop", "", False),
    ],
)
def test_a_repository_is_a_plain_https_address_and_a_ref_no_option(
    url: str, ref: str | None, fine: bool
) -> None:
    assert (repository_fault(url, ref) is None) == fine


@pytest.mark.parametrize(
    ("url", "provider", "base_url", "own"),
    [
        ("https://github.com/you/shop", "github", None, True),
        ("https://github.com/you/shop", "github", "https://api.github.com", True),
        ("https://gitlab.com/you/shop", "gitlab", None, True),
        ("https://git.example.org/you/shop", "gitlab", "https://git.example.org/api/v4", True),
        ("https://git.example.org:8443/shop", "gitlab", "https://git.example.org:8443/api/v4", True),
        ("https://github.com/you/shop", "gitlab", None, False),
        ("https://github.com.evil.example/you/shop", "github", None, False),
        ("https://evil.example/github.com", "github", None, False),
        ("https://github.com:8443/you/shop", "github", None, False),
        ("https://git.example.org:8443/shop", "gitlab", "https://git.example.org/api/v4", False),
        ("https://example.org/shop", "github", "https://api.example.org", False),
    ],
)
def test_a_credential_opens_what_is_on_its_own_host_and_nothing_else(
    url: str, provider: str, base_url: str | None, own: bool
) -> None:
    assert is_hosted_by(url, provider, base_url) == own


def test_what_is_kept_of_a_request_holds_no_secret_and_knows_it_again() -> None:
    whole = RunRequest(
        kind="rca",
        files={},
        system_prompt="",
        prompt="",
        json_schema={},
        model="m",
        credential=Credential("anthropic", secret="of the provider"),
        mcp=McpPlace("http://service/mcp", "of the project", ()),
        limits=DEFAULT_LIMITS["rca"],
        repo=RepoPlace("https://github.com/you/shop", secret="of the host"),
    )
    plain = whole.plain()
    assert (plain.credential.secret, plain.mcp.token, plain.repo and plain.repo.secret) == (None, "", None)
    assert plain.digest() == whole.digest()
    assert plain.opened("of the provider", "of the host", "of the project") == whole
    assert "of the" not in repr(whole)
