"""Compiled modules and their sources: one text, and the same answers to whatever is sent."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import protocol.compiled
from protocol.compiled import MODULES, SWITCH, sources, state, twin
from svc.domain.dialects import DIALECTS
from tests.conftest import missing
from tests.domain.dialects.speaking import CONVERSATIONS
from tests.examples import examples
from tests.ingest import decoding
from tests.ingest.bodies import ANSWERED, ASKED, TEXT, every_dialect
from tests.wire import event, request, span

ROOT = Path(__file__).parents[2]


@attrs.define
class Ways:
    """Two processes that decode: one on compiled modules, one on their sources."""

    processes: list[subprocess.Popen[bytes]]

    def say(self, body: bytes) -> list[bytes]:
        """What each says of a body."""
        for process in self.processes:
            assert process.stdin is not None
            decoding.send(process.stdin, body)
        return [self._heard(process) for process in self.processes]

    def _heard(self, process: subprocess.Popen[bytes]) -> bytes:
        assert process.stdout is not None
        said = decoding.receive(process.stdout)
        assert said is not None
        return said

    def agree(self, body: bytes) -> bytes:
        """What both say, which must be the same."""
        compiled, plain = self.say(body)
        if compiled != plain:
            # Where they part: a difference of all lines takes minutes for each example that is tried.
            pairs = enumerate(zip(compiled, plain, strict=False))
            at = next((place for place, (mine, theirs) in pairs if mine != theirs), 0)
            start = max(0, at - 200)
            pytest.fail(f"compiled {compiled[start : at + 200]!r}, plain {plain[start : at + 200]!r}")
        return plain


@pytest.fixture(scope="module")
def ways() -> Iterator[Ways]:
    if not all((Path(protocol.compiled.__file__).parent / twin(name)).exists() for name in MODULES):
        missing("compiled modules of the present sources (`make compiled`)")
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.ingest.decoding"],
            cwd=ROOT,
            env={**os.environ, SWITCH: wanted, "PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for wanted in ("true", "false")
    ]
    both = Ways(processes)
    assert [int(both._heard(process)) for process in processes] == [len(MODULES), 0]
    yield both
    for process in processes:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        assert process.wait(20) == 0
        process.stdout.close()


def test_every_dialect_comes_to_the_same_compiled_or_not(ways: Ways) -> None:
    said_of_all = ways.agree(every_dialect())
    assert said_of_all.count(b"SpanRow") == 0
    assert b"weather" in said_of_all
    assert b"Rain." in said_of_all


keys = sorted(
    {
        key.replace("*", "0.x")
        for dialect in DIALECTS
        for group in (*dialect.keys.values(), *dialect.details.values(), (*dialect.marks, *dialect.reads))
        for key in group
    }
    | {key.replace("*", "0.x") for dialect in DIALECTS for key in (*dialect.input_keys, *dialect.output_keys)}
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.text(max_size=30)
    | st.binary(max_size=20)
    | st.sampled_from(["chat", "execute_tool", "gpt-4o", "openai", "12", "-1", "1e9", '"quoted"', "NaN"])
    | st.sampled_from(['[{"role":"user","content":NaN}]', '{"error":{"type":"rate_limited"}}', "[" * 400])
)
said = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(st.dictionaries(st.sampled_from(keys), said, max_size=8), min_size=1, max_size=4))
@settings(max_examples=examples(150), deadline=None)
def test_whatever_attributes_say_comes_to_the_same_compiled_or_not(
    ways: Ways, told: list[dict[str, Any]]
) -> None:
    spans = [span(attributes=one, span_id=(n + 1).to_bytes(8, "big")) for n, one in enumerate(told)]
    ways.agree(request(*spans).SerializeToString())


@given(st.data())
@settings(max_examples=examples(150), deadline=None)
def test_a_damaged_body_comes_to_the_same_compiled_or_not(ways: Ways, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(CONVERSATIONS)))
    failed = event("exception", {"exception.message": TEXT})
    raw = bytearray(
        request(span(attributes=CONVERSATIONS[name](ASKED, ANSWERED), events=[failed])).SerializeToString()
    )
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw)))
        raw[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    ways.agree(bytes(raw))


# --- which is taken ---------------------------------------------------------------------------------------


def asked(*code: str, **env: str) -> str:
    """What a fresh process says."""
    done = subprocess.run(
        [sys.executable, *code],
        cwd=ROOT,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_is_off_is_not_taken_and_the_version_says_so() -> None:
    assert f"plain Python: {SWITCH} says so" in asked("-m", "svc", "--version", **{SWITCH: "false"})
    where = asked("-c", "import svc.domain.intake.mapping as m; print(m.__file__)", **{SWITCH: "false"})
    assert where.strip().endswith("mapping.py")


def test_a_twin_is_named_by_its_text_so_that_another_text_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = twin("svc.domain.intake.mapping")
    for name in MODULES:
        for source in sources(name):
            copy = tmp_path / source.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(source.read_bytes())
    monkeypatch.setattr(protocol.compiled, "_ROOT", tmp_path)
    assert twin("svc.domain.intake.mapping") == before
    (tmp_path / "svc/domain/intake/mapping.py").write_text("# another text\n")
    assert twin("svc.domain.intake.mapping") != before


def test_a_twin_that_does_not_load_leaves_the_source_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SWITCH, raising=False)
    monkeypatch.setattr(protocol.compiled, "_FOLDER", tmp_path)
    assert "nothing is compiled" in state()[1]
    (tmp_path / twin("svc.domain.intake.mapping")).write_bytes(b"\x7fELF and nothing else")
    assert protocol.compiled._Twins().find_spec("svc.domain.intake.mapping", None) is None
    assert state() == (
        False,
        "plain Python: what is compiled is of other sources, or does not run on this system",
    )
