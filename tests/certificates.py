"""An authority for tests: certificates of its own, good, expired, for other names."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from protocol.certificates import Pair


def _named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


@cache
def _root() -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    root = (
        x509.CertificateBuilder()
        .subject_name(_named("Test Root"))
        .issuer_name(_named("Test Root"))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=800))
        .not_valid_after(now + timedelta(days=800))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return root, key


def root_pem() -> bytes:
    """The certificate that clients must trust."""
    return _root()[0].public_bytes(Encoding.PEM)


def trusting(root: bytes | None = None) -> ssl.SSLContext:
    """A client's context that trusts this authority and nobody else."""
    return ssl.create_default_context(cadata=(root or root_pem()).decode())


def pair_for(*names: str, life: timedelta = timedelta(days=30), age: timedelta = timedelta(days=1)) -> Pair:
    """A pair for these names that began `age` ago."""
    root, root_key = _root()
    key = ec.generate_private_key(ec.SECP256R1())
    begins_at = datetime.now(UTC) - age
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_named(names[0]))
        .issuer_name(root.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins_at)
        .not_valid_after(begins_at + life)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(root_key.public_key()), critical=False
        )
        .sign(root_key, hashes.SHA256())
    )
    return Pair(
        certificate.public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )


def mount(folder: Path, pair: Pair) -> None:
    """Put a pair where `owncert` looks for it."""
    folder.mkdir(exist_ok=True)
    (folder / "tls.key").write_bytes(pair.key)
    (folder / "tls.crt").write_bytes(pair.chain)


#: The ways in which a pair can be wrong, as the fault tells them.
BROKEN = ("not a pair", "not in PEM form", "not a private key", "expired on")


def broken(kind: str, domain: str) -> Pair:
    """A certificate and a key that must not be served."""
    good, other = pair_for(domain), pair_for(domain)
    return {
        "not a pair": Pair(good.chain, other.key),
        "not in PEM form": Pair(b"nothing", good.key),
        "not a private key": Pair(good.chain, good.chain),
        "expired on": pair_for(domain, life=timedelta(days=2), age=timedelta(days=3)),
    }[kind]
