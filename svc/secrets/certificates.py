"""Certificates and their keys: read, checked, described, made by ourselves while there is no other.

Called by the wiring and by `doctor`. Never speaks to anybody and never decides what is served.

Secrets: private keys pass through as PEM; faults name files and never what stands in them.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from protocol.certificates import BadPair, CertificateFacts, Challenge, Pair, other_names
from protocol.paths import path_refusal
from svc.config.table import Settings

log = logging.getLogger(__name__)

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
#: A chain of certificates is a few KB.
_MOST_BYTES: Final = 256 * 1024
#: How long one of our own making lasts; it is made anew at each start that needs one.
_OWN_LIFE: Final = timedelta(days=90)
_ACME_IDENTIFIER: Final = x509.ObjectIdentifier("1.3.6.1.5.5.7.1.31")
#: Clocks differ.
_SKEW: Final = timedelta(hours=1)


def read_pair(folder: Path) -> Pair:
    """The pair that the operator has mounted. Raises `BadPair` when a file cannot be read."""
    return Pair(_read_file(folder / CERTIFICATE), _read_file(folder / KEY))


def _read_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise BadPair(path_refusal(path, error, "SVC_CERTS_DIR")) from None
    if len(text) > _MOST_BYTES:
        raise BadPair(f"{path} is larger than {_MOST_BYTES} bytes; that is no certificate")
    return text


def checked(pair: Pair, now: datetime, where: str) -> CertificateFacts:
    """What the pair's certificate says. Raises `BadPair` unless it can be served now; `where` names it."""
    try:
        certificate = x509.load_pem_x509_certificates(pair.chain)[0]
    except (ValueError, UnsupportedAlgorithm):
        raise BadPair(f"the certificate of {where} is not in PEM form") from None
    try:
        key = serialization.load_pem_private_key(pair.key, password=None)
    except TypeError:
        raise BadPair(f"the key of {where} is under a passphrase; it must be without one") from None
    except (ValueError, UnsupportedAlgorithm):
        raise BadPair(f"the key of {where} is not a private key in PEM form") from None
    if _public(key.public_key()) != _public(certificate.public_key()):
        raise BadPair(f"certificate and key of {where} are not a pair")
    facts = _facts(certificate)
    if facts.left(now) <= timedelta(0):
        raise BadPair(f"the certificate of {where} expired on {facts.ends_at:%Y-%m-%d}")
    return facts


def own_facts(settings: Settings, pair: Pair, now: datetime) -> CertificateFacts:
    """What the operator's pair says. Raises `BadPair`; warns of another name."""
    facts = checked(pair, now, str(settings.certs_dir))
    assert settings.site_domain is not None
    if not facts.covers(settings.site_domain):
        log.warning(other_names(settings.site_domain, facts.names))
    return facts


def _public(key: object) -> bytes:
    return key.public_bytes(  # type: ignore[attr-defined,no-any-return]
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _facts(certificate: x509.Certificate) -> CertificateFacts:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        domains = tuple(names.get_values_for_type(x509.DNSName))
    except x509.ExtensionNotFound:
        domains = ()
    return CertificateFacts(
        issuer=_name(certificate.issuer),
        names=domains,
        begins_at=certificate.not_valid_before_utc,
        ends_at=certificate.not_valid_after_utc,
        self_signed=certificate.issuer == certificate.subject,
    )


def _name(name: x509.Name) -> str:
    for kind in (NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME):
        if attributes := name.get_attributes_for_oid(kind):
            return str(attributes[0].value)[:200]
    return name.rfc4514_string()[:200]


def self_signed(domain: str, now: datetime) -> Pair:
    """A pair of our own making, which lets clients speak TLS until an authority has answered."""
    return _own(domain, now, None)


def proof(challenge: Challenge, now: datetime) -> Pair:
    """The pair that proves a name in the handshake itself (RFC 8737 §3)."""
    return _own(challenge.domain, now, sha256(challenge.key_authorization.encode()).digest())


def _own(domain: str, now: datetime, digest: bytes | None) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    # A common name has 64 characters at most; nobody reads it where alternative names stand.
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, domain[:64])])
    building = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _OWN_LIFE)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(domain)]), critical=False)
    )
    if digest is None:
        building = building.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    else:
        # An OCTET STRING of 32 bytes, in DER.
        extension = x509.UnrecognizedExtension(_ACME_IDENTIFIER, b"\x04\x20" + digest)
        building = building.add_extension(extension, critical=True)
    certificate = building.sign(key, hashes.SHA256())
    return Pair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    )
