"""Who may join a service that others can reach: what the boot, the doctor and the first answer say."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest

from tests.forked import ran
from tests.service import PLAIN, TRACE_SVC, Service, free_port, running

ORG = "/api/orgs/default"
OPEN = "anyone who can reach this service may sign up (sign-up mode open)"
UNPROVED = "sign-up mode domain takes addresses at their word"


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def service(port: int) -> Iterator[Service]:
    limits = {"SVC_AUTH_TRIES_PER_ADDRESS": "0"}
    with running(SVC_HTTP_BIND=f"0.0.0.0:{port}", **limits) as found:
        yield found


@pytest.fixture(scope="module")
def owner(service: Service, port: int) -> Iterator[httpx2.Client]:
    url = f"http://127.0.0.1:{port}"
    with httpx2.Client(base_url=url, headers={"Origin": url}, timeout=60, **PLAIN) as client:
        body = {"email": "owner@example.org", "password": "long enough"}
        first = client.post("/auth/signup", json=body).json()["data"]
        assert first["signup_undecided"]["proposed"] == "invite"
        yield client


def doctor(service: Service) -> str:
    done = ran([TRACE_SVC, "doctor"], env=dict(service.env), timeout_s=60)
    return done.stdout


def test_a_reachable_service_that_is_open_says_so_until_it_is_not(
    service: Service, owner: httpx2.Client
) -> None:
    assert OPEN in service.log.read_text()
    assert f"warn  sign-up     {OPEN}" in doctor(service)
    domain = {"mode": "domain", "domains": ["example.org"]}
    assert owner.put(ORG + "/signup-policy", json=domain).status_code == 200
    assert f"warn  sign-up     {UNPROVED}" in doctor(service)
    assert owner.put(ORG + "/signup-policy", json={"mode": "invite"}).status_code == 200
    assert "ok    sign-up     mode invite" in doctor(service)
    assert owner.get(ORG + "/signup-policy").json()["data"] == {"mode": "invite", "domains": []}


def test_an_invitation_is_taken_up_by_its_secret_alone(owner: httpx2.Client) -> None:
    owner.put(ORG + "/signup-policy", json={"mode": "invite"})
    made = owner.post(ORG + "/invitations", json={"email": "ann@example.org"}).json()["data"]
    body = {"email": "ann@example.org", "password": "long enough"}
    url = str(owner.base_url)
    with httpx2.Client(base_url=url, timeout=60, **PLAIN) as ann:
        refused = ann.post("/auth/signup", json=body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "AUTH.SIGNUP_REFUSED")
        joined = ann.post("/auth/signup", json={**body, "invitation": made["secret"]})
        assert joined.json()["data"]["organizations"][0]["role"] == "member"


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("169.254.169.254", "no setting opens it"),
        ("[::ffff:169.254.169.254]", "no setting opens it"),
        ("127.0.0.1:9", "SVC_INTEGRATION_ALLOWED_NETWORKS"),
        ("localhost:9", "SVC_INTEGRATION_ALLOWED_NETWORKS"),
    ],
)
def test_an_integration_of_a_reachable_service_leads_nowhere_near(
    owner: httpx2.Client, address: str, told: str
) -> None:
    body = {"kind": "model_provider", "provider": "openai_compatible", "name": address, "secret": "s"}
    made = owner.post(ORG + "/integrations", json={**body, "base_url": f"http://{address}/v1"}).json()["data"]
    answer = owner.post(f"{ORG}/integrations/{made['id']}/test").json()["data"]
    assert (answer["reachable"], answer["status"]) == (False, None)
    assert told in answer["message"]


def test_no_secret_of_an_invitation_reaches_the_log(service: Service, owner: httpx2.Client) -> None:
    made = owner.post(ORG + "/invitations", json={"email": "eve@example.org"}).json()["data"]
    assert made["secret"] not in service.log.read_text()
