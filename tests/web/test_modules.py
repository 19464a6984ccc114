"""The modules of the pages write what the server writes, to the letter."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import msgspec

from svc.web.shell import words
from tests.conftest import missing

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "svc/web/static"
TABLE = msgspec.json.decode((ROOT / "tests/quantities.json").read_bytes())

#: Reads values by function from stdin and answers what the modules make of them. The sources are handed over
#: as data, because a file is a module to node only below a package that says so.
_RUN = """
import { readFileSync } from "node:fs";
const module = (path) => import("data:text/javascript," + encodeURIComponent(readFileSync(path, "utf8")));
const functions = { ...(await module(process.argv[1])), ...(await module(process.argv[2])) };
const wanted = JSON.parse(readFileSync(0, "utf8"));
const texts = {};
for (const [name, values] of Object.entries(wanted)) texts[name] = values.map((one) => functions[name](one));
console.log(JSON.stringify(texts));
"""


def written(values: dict[str, list[object]]) -> dict[str, list[str]]:
    """What the modules' functions make of values."""
    node = shutil.which("node")
    if node is None:
        missing("node")
    command = [node, "--input-type=module", "-e", _RUN, str(STATIC / "format.js"), str(STATIC / "visible.js")]
    answer = subprocess.run(
        command, input=msgspec.json.encode(values), capture_output=True, check=True, timeout=60
    )
    return msgspec.json.decode(answer.stdout, type=dict[str, list[str]])


def test_modules_and_server_write_what_the_table_says() -> None:
    texts = written({kind: [value for value, _ in cases] for kind, cases in TABLE.items()})
    assert texts == {kind: [text for _, text in cases] for kind, cases in TABLE.items()}
    assert [words.visible(text) for text, _ in TABLE["visible"]] == [text for _, text in TABLE["visible"]]


def test_modules_and_server_agree_on_values_that_nobody_chose() -> None:
    dice = random.Random(1)
    values: list[object] = [0.5, 1.5, 2.5, 0.125, 999.5, 1023.5]
    values += [dice.choice((1, -1)) * 10 ** dice.uniform(-10, 14) for _ in range(3_000)]
    values += [dice.randrange(10**12) / 10**9 for _ in range(1_000)]
    values += [dice.randrange(2_000) / 2**4 for _ in range(1_000)]
    kinds = sorted(TABLE.keys() - {"visible"})
    texts = written({kind: values for kind in kinds})
    for kind in kinds:
        write = getattr(words, kind)
        wrong = [(v, write(v), text) for v, text in zip(values, texts[kind], strict=True) if write(v) != text]
        assert wrong == [], kind


def test_modules_and_server_make_the_same_characters_visible() -> None:
    chars = "ab 😀👨⚕🏴\ufe0f\u200c\u200d\u202e\u0627\u06cc\u0915\u094d\u1820\u180b\u061c\ufeff"
    chars += "\U000e0067\U000e007f"
    dice = random.Random(2)
    texts = ["".join(dice.choices(chars, k=12)) for _ in range(3_000)]
    assert written({"visible": list(texts)})["visible"] == [words.visible(text) for text in texts]
