"""A certificate authority for tests: pebble, which looks at the ports that the test says.

It rejects a fifth of all good nonces and reuses no authorization, as its worst real sisters do.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import httpx2

from tests.certificates import mount, pair_for, root_pem, trusting
from tests.conftest import missing
from tests.service import free_port, until


@attrs.frozen
class Pebble:
    """A running authority. `ca_file` is what it is trusted by, `root` what its certificates are."""

    directory_url: str
    ca_file: Path
    root: bytes
    log: Path


@contextmanager
def pebble(
    http_port: int, tls_port: int, *, port: int | None = None, reject_nonces: int = 20
) -> Iterator[Pebble]:
    """An authority that looks for HTTP-01 and TLS-ALPN-01 answers at these ports of the name."""
    if shutil.which("pebble") is None:
        missing("pebble")
    with tempfile.TemporaryDirectory(prefix="pebble-") as name:
        folder = Path(name)
        mount(folder, pair_for("localhost"))
        (folder / "root.pem").write_bytes(root_pem())
        listen, management = port or free_port(), free_port()
        config = {
            "listenAddress": f"127.0.0.1:{listen}",
            "managementListenAddress": f"127.0.0.1:{management}",
            "certificate": str(folder / "tls.crt"),
            "privateKey": str(folder / "tls.key"),
            "httpPort": http_port,
            "tlsPort": tls_port,
            "ocspResponderURL": "",
            "externalAccountBindingRequired": False,
        }
        (folder / "config.json").write_text(json.dumps({"pebble": config}))
        env = {
            **os.environ,
            "PEBBLE_VA_NOSLEEP": "1",
            "PEBBLE_WFE_NONCEREJECT": str(reject_nonces),
            "PEBBLE_AUTHZREUSE": "0",
        }
        log = folder / "log"
        with log.open("w") as sink:
            process = subprocess.Popen(
                ["pebble", "-config", folder / "config.json", "-strict"], env=env, stdout=sink, stderr=sink
            )
        try:
            until(lambda: _listens(listen) and _listens(management))
            context: ssl.SSLContext = trusting()
            root = httpx2.get(f"https://localhost:{management}/roots/0", verify=context).content
            yield Pebble(f"https://localhost:{listen}/dir", folder / "root.pem", root, log)
        finally:
            process.kill()
            process.wait(10)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
