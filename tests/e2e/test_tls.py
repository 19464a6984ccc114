"""TLS in the process: the operator's certificate at both doors, its exchange, the plain port beside it."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import attrs
import httpx2
import pytest
import trio
from cryptography import x509
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter

from protocol.certificates import Pair
from tests.certificates import BROKEN, broken, mount, pair_for, root_pem, trusting
from tests.e2e.test_exporters import tell_a_story
from tests.forked import ran
from tests.pebble import pebble
from tests.service import PLAIN, TRACE_SVC, Service, environment, free_port, running, until

DOMAIN = "localhost"
SECRETS = {"SVC_SECRET_KEY": "A" * 43 + "=", "SVC_AUTH_COOKIE_PASSWORD": "x" * 40}


@attrs.frozen
class Public:
    """A service under a name, reached over TLS; `plain` is its plain port."""

    service: Service
    plain: str
    certs: Path

    @property
    def url(self) -> str:
        return self.service.url

    def tls(self) -> dict[str, Any]:
        """What health says of the certificate."""
        details: dict[str, Any] = self.service.health()["components"]["tls"]["details"]
        return details


@contextmanager
def public(certs: Path, *, data_dir: Path | None = None, **settings: str) -> Iterator[Public]:
    """A service that does TLS itself."""
    plain, secure = free_port(), free_port()
    env = {
        **SECRETS,
        "SITE_DOMAIN": DOMAIN,
        "TLS_MODE": "owncert",
        "SVC_CERTS_DIR": str(certs),
        "SVC_HTTP_BIND": f"127.0.0.1:{plain}",
        "SVC_HTTPS_BIND": f"127.0.0.1:{secure}",
        **settings,
    }
    plain, secure = (int(env[name].rpartition(":")[2]) for name in ("SVC_HTTP_BIND", "SVC_HTTPS_BIND"))
    with running(data_dir, **env) as service:
        assert service.url == f"https://{DOMAIN}"
        yield Public(
            attrs.evolve(service, url=f"https://{DOMAIN}:{secure}"), f"http://127.0.0.1:{plain}", certs
        )


ACME = {"TLS_MODE": "acme", "ACME_EMAIL": "me@example.org"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Public]:
    certs = tmp_path_factory.mktemp("certs")
    mount(certs, pair_for(DOMAIN))
    with public(certs) as found:
        yield found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "root.pem"
    path.write_bytes(root_pem())
    return path


def served(site: Public, port: int | None = None, **more: Any) -> x509.Certificate:
    """The certificate of one handshake."""
    context = trusting()
    number = port or site.service.port
    with (
        socket.create_connection(("127.0.0.1", number), 10) as sock,
        context.wrap_socket(sock, server_hostname=DOMAIN, **more) as wrapped,
    ):
        der = wrapped.getpeercert(binary_form=True)
        assert der is not None
        return x509.load_der_x509_certificate(der)


def test_exporters_send_over_http_and_grpc_under_the_same_certificate(
    site: Public, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where it is set, the client beneath the exporter prefers it to what the exporter says.
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    bearer = f"Bearer {site.service.write_key}"
    session = uuid.uuid4().hex
    tell_a_story(
        HttpExporter(f"{site.url}/v1/traces", headers={"Authorization": bearer}, certificate_file=str(root)),
        session,
    )
    from grpc import ssl_channel_credentials

    tell_a_story(
        GrpcExporter(
            f"{DOMAIN}:{site.service.grpc_port}",
            credentials=ssl_channel_credentials(root_pem()),
            headers=(("authorization", bearer),),
        ),
        session,
    )
    site.service.wait_for_spans(4, session_id=session)
    assert served(site).serial_number == served(site, site.service.grpc_port).serial_number


@pytest.mark.parametrize("version", ["--http1.1", "--http2"])
def test_curl_reads_both_versions_of_http_and_is_told_to_stay_with_tls(
    site: Public, root: Path, version: str
) -> None:
    done = subprocess.run(
        ["curl", "-sSi", version, "--cacert", root, f"{site.url}/actuator/health/readiness"],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    head = done.stdout.lower()
    assert head.startswith("http/2 200" if version == "--http2" else "http/1.1 200"), head
    assert "strict-transport-security: max-age=31536000\n" in head.replace("\r", "")


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_a_handshake_without_a_name_gets_the_certificate_and_an_old_protocol_none(site: Public) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", site.service.port), 10) as sock,
        context.wrap_socket(sock) as wrapped,
    ):
        assert wrapped.getpeercert(binary_form=True)
        assert wrapped.version() == "TLSv1.3"
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    for version, refused in ((ssl.TLSVersion.TLSv1_2, False), (ssl.TLSVersion.TLSv1_1, True)):
        context.maximum_version = version
        with (
            socket.create_connection(("127.0.0.1", site.service.port), 10) as sock,
            pytest.raises(ssl.SSLError) if refused else nullcontext(),
        ):
            context.wrap_socket(sock).close()


def test_a_session_over_tls_is_of_this_host_alone(site: Public, root: Path) -> None:
    body = {"email": "owner@example.org", "password": "correct horse battery"}
    headers = {"origin": f"https://{DOMAIN}"}
    with httpx2.Client(base_url=site.url, verify=trusting(), headers=headers, timeout=30) as client:
        answer = client.post("/auth/signup", json=body)
        assert answer.status_code == 201, answer.text
        assert answer.headers["x-content-type-options"] == "nosniff"
        name, _, rest = answer.headers["set-cookie"].partition("=")
        assert (name, rest.partition("; ")[2]) == (
            "__Host-svc_session",
            "Path=/; Max-Age=604800; HttpOnly; SameSite=Lax; Secure",
        )
        value = rest.partition(";")[0]
        client.cookies.clear()
        for cookie, status in ((name, 200), ("svc_session", 401)):
            me = client.get("/auth/me", headers={"cookie": f"{cookie}={value}"})
            assert me.status_code == status


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_the_plain_port_leads_readers_to_tls(site: Public, method: str) -> None:
    answer = httpx2.request(method, f"{site.plain}/traces/a%2Fb?x=1&y=%20", **PLAIN)
    assert answer.status_code == 308
    assert answer.headers["location"] == f"https://{DOMAIN}/traces/a%2Fb?x=1&y=%20"
    assert "strict-transport-security" not in answer.headers


@pytest.mark.parametrize("path", ["/v1/traces", "/mcp", "/api/v1/projects", "/v1/query/count"])
def test_the_plain_port_refuses_what_is_sent_in_the_clear(site: Public, path: str) -> None:
    before = site.service.metric("svc_ingest_requests_total")
    answer = httpx2.post(
        f"{site.plain}{path}",
        content=b"{}",
        headers={"Authorization": f"Bearer {site.service.write_key}", "Content-Type": "application/json"},
        **PLAIN,
    )
    assert answer.status_code == 403
    assert answer.json()["error"]["message"].startswith("use https: ")
    assert site.service.metric("svc_ingest_requests_total") == before


def test_the_plain_port_answers_health_to_this_machine_and_no_challenge_that_nobody_waits_for(
    site: Public,
) -> None:
    assert httpx2.get(f"{site.plain}/actuator/health/readiness", **PLAIN).status_code == 200
    assert httpx2.get(f"{site.plain}/actuator/prometheus", **PLAIN).status_code == 308
    for token in ("abc", "../../etc/passwd", "a" * 200):
        answer = httpx2.get(f"{site.plain}/.well-known/acme-challenge/{token}", **PLAIN)
        assert answer.status_code in (404, 308)
        assert "abc" not in answer.text


async def test_a_new_certificate_is_taken_up_under_load_and_no_request_is_lost(site: Public) -> None:
    """HTTP/1.1 and HTTP/2 clients ask on, new connections and old, while the pair is exchanged."""
    old = served(site).serial_number
    codes: list[int] = []
    swapped = trio.Event()

    async def ask_on(fresh: bool, http2: bool) -> None:
        done = False
        while not done:
            async with httpx2.AsyncClient(verify=trusting(), http2=http2, timeout=20) as client:
                for _ in range(1 if fresh else 40):
                    # One more round after the exchange.
                    done = swapped.is_set()
                    codes.append((await client.get(f"{site.url}/actuator/health/liveness")).status_code)

    before = site.service.metric('svc_actor_crashes_total{actor="certificates"}')
    async with trio.open_nursery() as nursery:
        for fresh, http2 in ((True, False), (False, False), (True, True), (False, True)):
            nursery.start_soon(ask_on, fresh, http2)
        for _ in range(5):
            pair = pair_for(DOMAIN)
            mount(site.certs, pair)
            wanted = x509.load_pem_x509_certificate(pair.chain).serial_number
            os.kill(site.service.process.pid, signal.SIGHUP)
            await trio.to_thread.run_sync(
                lambda wanted=wanted: until(lambda: served(site).serial_number == wanted)
            )
        swapped.set()
    assert set(codes) == {200}
    assert len(codes) > 50
    assert served(site).serial_number != old
    assert served(site, site.service.grpc_port).serial_number == served(site).serial_number
    assert site.service.metric('svc_actor_crashes_total{actor="certificates"}') == before


@pytest.mark.parametrize("kind", BROKEN)
def test_a_bad_pair_never_breaks_the_listener_and_is_told(site: Public, kind: str) -> None:
    before = served(site).serial_number
    good = Pair((site.certs / "tls.crt").read_bytes(), (site.certs / "tls.key").read_bytes())
    try:
        mount(site.certs, broken(kind, DOMAIN))
        os.kill(site.service.process.pid, signal.SIGHUP)
        until(lambda: kind in site.tls().get("last_fault", ""))
        assert served(site).serial_number == before
        assert kind in site.service.log.read_text()
    finally:
        mount(site.certs, good)
        os.kill(site.service.process.pid, signal.SIGHUP)
    until(lambda: "last_fault" not in site.tls())


def test_health_metrics_and_doctor_say_how_long_the_certificate_lasts(site: Public) -> None:
    told = site.tls()
    assert (told["mode"], told["domain"], told["tls"], told["issuer"]) == (
        *("owncert", DOMAIN, "valid"),
        "Test Root",
    )
    assert 28 < told["days_left"] < 30
    left_s = site.service.metric("tls_certificate_expires_seconds")
    assert abs(left_s / 86_400 - told["days_left"]) < 0.1
    said = site.service.command("doctor")
    assert f"used for {DOMAIN}: by Test Root, {told['days_left']} days left" in said
    assert "is good until" in said


def test_the_demo_finds_the_service_behind_its_certificate(site: Public) -> None:
    assert "stored and queryable" in site.service.command("demo")


def test_a_start_refuses_a_pair_that_cannot_be_served_before_anything_is_made(tmp_path: Path) -> None:
    certs = tmp_path / "certs"
    mount(certs, broken("not a pair", DOMAIN))
    env = environment(
        tmp_path / "data",
        **SECRETS,
        SITE_DOMAIN="traces.example.org",
        TLS_MODE="owncert",
        SVC_CERTS_DIR=str(certs),
    )
    done = ran([TRACE_SVC, "serve"], env=env, timeout_s=60)
    assert done.returncode == 1
    assert done.stderr == f"trace-svc: certificate and key of {certs} are not a pair\n"
    assert not (tmp_path / "data").exists()


def shown(public: Public, root: bytes | None) -> x509.Certificate:
    """The certificate of one handshake, checked by `root`, not at all for None."""
    context = ssl.create_default_context() if root is None else trusting(root)
    if root is None:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", public.service.port), 10) as sock,
        context.wrap_socket(sock, server_hostname=DOMAIN) as wrapped,
    ):
        der = wrapped.getpeercert(binary_form=True)
        assert der is not None
        return x509.load_der_x509_certificate(der)


@pytest.mark.release
def test_a_certificate_of_an_authority_takes_the_place_of_our_own_and_outlives_a_restart(
    open_folder: Path,
) -> None:
    data, plain, secure, listen = open_folder / "data", free_port(), free_port(), free_port()
    binds = {"SVC_HTTP_BIND": f"127.0.0.1:{plain}", "SVC_HTTPS_BIND": f"127.0.0.1:{secure}"}
    root_file = open_folder / "root.pem"
    root_file.write_bytes(root_pem())
    settings = {
        **ACME,
        **binds,
        "SVC_ACME_DIRECTORY_URL": f"https://{DOMAIN}:{listen}/dir",
        "SVC_ACME_CA_FILE": str(root_file),
    }
    with public(open_folder, data_dir=data, **settings) as site:
        # The start has not waited: nobody listens there yet.
        own = shown(site, None)
        assert own.issuer == own.subject
        until(lambda: "cannot be reached" in site.tls().get("last_fault", ""))
        assert site.tls()["tls"] == "waiting"
        assert site.service.health()["status"] == "UP"
        assert "a self-signed one is used; last fault: the authority" in site.service.command("doctor")
        with pebble(plain, free_port(), port=listen) as authority:
            os.kill(site.service.process.pid, signal.SIGHUP)
            until(lambda: site.tls()["tls"] == "valid")
            given = shown(site, authority.root)
            assert site.tls()["issuer"].startswith("Pebble")
            assert "last_fault" not in site.tls()
    kept = data / "tls"
    assert {path.name for path in kept.iterdir()} == {
        *("account.pem", "account.json", f"{DOMAIN}.crt", f"{DOMAIN}.key")
    }
    assert kept.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in kept.iterdir()} == {0o600}
    with public(open_folder, data_dir=data, **settings) as site:
        assert shown(site, authority.root).serial_number == given.serial_number
        assert site.tls()["tls"] == "valid"
