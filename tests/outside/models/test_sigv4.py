"""Signed requests, judged by the cloud's own library."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import quote

import botocore.auth
import pytest
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from svc.outside.models.sigv4 import KeyPair, signed

AT = datetime(2026, 11, 20, 12, 34, 56, tzinfo=UTC)
HOST = "https://bedrock-runtime.eu-central-1.amazonaws.com"
MODELS = ("anthropic.claude-v1:0", "arn:aws:bedrock:eu-central-1:1:inference-profile/eu.a b~c", "plain")


@pytest.mark.parametrize("session", [None, "a/session+token=="])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("query", ["", "?b=2&a=1%2F2&c="])
@pytest.mark.parametrize("body", [b"", b'{"max_tokens": 1}', "ü".encode()])
def test_a_signature_is_the_one_that_the_cloud_expects(
    session: str | None, model: str, query: str, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{HOST}/model/{quote(model, safe='-_.~')}/invoke{query}"
    headers = {"content-type": "application/json", "accept": "application/json"}
    ours = signed(
        "POST", url, headers, body, KeyPair("AKID", "secret/key+", session),
        service="bedrock", region="eu-central-1", at=AT,
    )  # fmt: skip
    moment = AT.replace(tzinfo=None)
    for name in ("get_current_datetime",):
        if hasattr(botocore.auth, name):
            monkeypatch.setattr(botocore.auth, name, lambda *_, **__: moment)
    theirs = AWSRequest("POST", url, headers=headers, data=body)
    botocore.auth.SigV4Auth(Credentials("AKID", "secret/key+", session), "bedrock", "eu-central-1").add_auth(
        theirs
    )
    assert ours["x-amz-date"] == theirs.headers["X-Amz-Date"] == "20261120T123456Z"
    assert ours["authorization"].replace(", ", ",") == theirs.headers["Authorization"].replace(", ", ",")
