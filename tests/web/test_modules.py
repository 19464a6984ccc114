"""The modules of the pages write what the server writes, to the letter, and come as one file."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from svc.web.shell import words
from svc.web.shell.assets import BUNDLES, Assets, bundle
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


def test_the_file_of_a_page_holds_each_of_its_modules_once_below_what_that_imports() -> None:
    files = Assets.read().files
    names = {path.name for path in STATIC.glob("*.js")}
    for name, left_out in BUNDLES.items():
        text = files[name].body.decode()
        ordered = re.findall(r'^modules\["([^"]+)"\] = ', text, re.MULTILINE)
        assert len(ordered) == len(set(ordered))
        assert left_out or set(ordered) == names
        assert not left_out & set(ordered)
        assert ordered[-1] == "main.js"
        for at, part in enumerate(re.split(r"^modules\[.*\] = ", text, flags=re.MULTILINE)[1:]):
            assert set(re.findall(r'= modules\["([^"]+)"\];', part)) <= set(ordered[:at]), ordered[at]
        # Nothing is fetched beside it, and nothing in it is for people alone.
        assert not re.search(r"^(import|export)\b|\bimport\(|^\s*/\*\*$", text, re.MULTILINE)
    assert "trace-grid.js" not in files["modules.js"].body.decode()


@pytest.mark.parametrize(
    "text",
    [
        'import "./part.js";\n',
        'import * as all from "./part.js";\n',
        "export default 1;\n",
        "export { start };\n",
    ],
)
def test_a_way_to_import_that_the_one_file_cannot_hold_stops_the_start(text: str) -> None:
    with pytest.raises(ValueError, match=r"odd\.js"):
        bundle({"main.js": "", "part.js": "", "odd.js": text + "export function start(root) {}\n"})


def test_modules_that_import_each_other_stop_the_start() -> None:
    modules = {
        "main.js": 'import { a } from "./a.js";\n',
        "a.js": 'import { b } from "./b.js";\nexport const a = 1;\n',
        "b.js": 'import { a } from "./a.js";\nexport const b = 1;\n',
    }
    with pytest.raises(ValueError, match=r"main\.js a\.js b\.js a\.js"):
        bundle(modules)
