"""Makes the documentation site from the Markdown of the repository: `make docs`.

`python deploy/site/build.py FOLDER` writes plain HTML, one style sheet, one ES module and the index that it
searches. Any web server shows it, under any path; no page asks anything of another host. Names the pages and
their order. A link that leads nowhere ends the build. Reads the working tree, imports nothing of the product.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import attrs
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markdown_it.token import Token

HERE = Path(__file__).parent
ROOT = HERE.parent.parent

#: Groups of the navigation: the source of each page, its name in an address, its name for readers.
GROUPS: tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...] = (
    (
        "Start",
        (
            ("README.md", "index", "Overview"),
            ("deploy/install.md", "install", "Installing it"),
            ("deploy/README.md", "running", "Running it"),
            ("deploy/sending.md", "sending", "Sending traces"),
            ("deploy/glossary.md", "glossary", "Glossary"),
        ),
    ),
    (
        "Use",
        (
            ("deploy/asking.md", "asking", "Querying"),
            ("deploy/assistants.md", "assistants", "Assistants"),
            ("deploy/detecting.md", "detecting", "Detection"),
            ("deploy/alerts.md", "alerts", "Alerts"),
            ("deploy/agents.md", "agents", "Agents"),
            ("deploy/feedback.md", "feedback", "Feedback"),
        ),
    ),
    (
        "Operate",
        (
            ("deploy/operating.md", "operating", "Operating"),
            ("deploy/settings.md", "settings", "Settings"),
            ("deploy/backup.md", "backup", "Backup and disk"),
            ("deploy/erasing.md", "erasing", "Personal data"),
            ("deploy/sizing.md", "sizing", "How large"),
            ("deploy/moving.md", "moving", "Moving in"),
            ("deploy/BENCHMARKS.md", "benchmarks", "Benchmarks"),
        ),
    ),
    (
        "More",
        (
            ("deploy/faq.md", "faq", "Questions"),
            ("CHANGELOG.md", "changelog", "Changelog"),
            ("SECURITY.md", "security", "Security"),
            ("CONTRIBUTING.md", "contributing", "Contributing"),
        ),
    ),
)
#: What of a section the index keeps to show and to search.
EXCERPT_CHARS = 1500
_SCHEMES = ("http", "https", "mailto")


class BrokenLink(Exception):
    """A link of a page that leads nowhere."""


@attrs.frozen
class Page:
    """One page: where it comes from, its name in an address and for readers."""

    source: Path
    name: str
    title: str

    @property
    def file(self) -> str:
        """The file that it becomes."""
        return f"{self.name}.html"


def pages(root: Path) -> dict[Path, Page]:
    """Every page by its source."""
    listed = [Page(root / source, name, title) for _, group in GROUPS for source, name, title in group]
    return {page.source: page for page in listed}


def slug(heading: str) -> str:
    """The anchor of a heading, as hosts of repositories make it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


class Site:
    """Turns the pages of a tree into HTML, and collects what the search finds."""

    def __init__(self, root: Path, out: Path) -> None:
        self.root, self.out = root, out
        self.pages = pages(root)
        self.entries: list[dict[str, str]] = []
        self._markdown = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
        # What they are given is HTML of ours; titles are escaped where they are put in.
        self._template = Environment(
            loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined
        ).get_template("page.html")

    def build(self) -> None:
        """Write the whole site. Raises `BrokenLink`."""
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir(parents=True)
        for page in self.pages.values():
            body, headings = self._body(page)
            html = self._template.render(
                page=page,
                groups=[
                    (name, [self.pages[self.root / part[0]] for part in group]) for name, group in GROUPS
                ],
                headings=headings,
                body=body,
            )
            (self.out / page.file).write_text(html, encoding="utf-8")
        index = json.dumps(self.entries, ensure_ascii=False, separators=(",", ":"))
        (self.out / "search.json").write_text(index, encoding="utf-8")
        shutil.copy(HERE / "search.js", self.out)
        shutil.copy(self.root / "svc" / "web" / "static" / "mark.svg", self.out)
        # The tokens of the product's own style, so that both look the same.
        look = (self.root / "svc" / "web" / "static" / "look.css").read_text(encoding="utf-8")
        tokens = re.search(r"^:root \{.*?^\}", look, re.MULTILINE | re.DOTALL)
        assert tokens is not None
        style = (HERE / "site.css").read_text(encoding="utf-8")
        (self.out / "site.css").write_text(f"{tokens[0]}\n{style}", encoding="utf-8")
        if wrong := broken(self.out):
            raise BrokenLink("\n".join(wrong))

    def _body(self, page: Page) -> tuple[str, list[tuple[str, str]]]:
        # Marks between which tables are renewed.
        text = re.sub(r"^<!--.*?-->\n", "\n", page.source.read_text(encoding="utf-8"), flags=re.MULTILINE)
        tokens = self._markdown.parse(text)
        headings: list[tuple[str, str]] = []
        entry = {"page": page.title, "title": page.title, "href": page.file, "text": ""}
        self.entries.append(entry)
        for number, token in enumerate(tokens):
            if token.type == "heading_open":
                text = _text(tokens[number + 1])
                token.attrSet("id", slug(text))
                if token.tag == "h2":
                    headings.append((slug(text), text))
                if token.tag != "h1":
                    entry = {
                        "page": page.title,
                        "title": text,
                        "href": f"{page.file}#{slug(text)}",
                        "text": "",
                    }
                    self.entries.append(entry)
            elif token.type == "inline":
                if tokens[number - 1].type != "heading_open" and len(entry["text"]) < EXCERPT_CHARS:
                    entry["text"] = f"{entry['text']} {_text(token)}".strip()[:EXCERPT_CHARS]
                self._point(page, token)
        self._rows(page, tokens)
        html: str = self._markdown.renderer.render(tokens, self._markdown.options, {})
        # A wide table scrolls by itself, and not the page.
        return html.replace("<table>", '<div class="wide"><table>').replace(
            "</table>", "</table></div>"
        ), headings

    def _rows(self, page: Page, tokens: list[Token]) -> None:
        """Each row of a table that begins with a setting is found by itself."""
        for number, token in enumerate(tokens):
            if token.type != "tr_open" or tokens[number + 1].type != "td_open":
                continue
            first = (tokens[number + 2].children or [])[:1]
            if (
                not first
                or first[0].type != "code_inline"
                or not re.fullmatch(r"[A-Z][A-Z0-9_]+", first[0].content)
            ):
                continue
            name = first[0].content
            end = next(n for n in range(number, len(tokens)) if tokens[n].type == "tr_close")
            cells = [_text(cell) for cell in tokens[number:end] if cell.type == "inline"]
            anchor = name.lower()
            token.attrSet("id", anchor)
            text = " · ".join(cell for cell in cells[1:] if cell)[:EXCERPT_CHARS]
            self.entries.append(
                {"page": page.title, "title": name, "href": f"{page.file}#{anchor}", "text": text}
            )

    def _point(self, page: Page, inline: Token) -> None:
        """Point links and pictures at the site, and bring along what is no page."""
        for child in inline.children or []:
            attribute = {"link_open": "href", "image": "src"}.get(child.type)
            if attribute is not None:
                child.attrSet(attribute, self._target(page, str(child.attrGet(attribute))))

    def _target(self, page: Page, link: str) -> str:
        parts = urlsplit(link)
        if parts.scheme in _SCHEMES:
            return link
        if parts.scheme or parts.netloc:
            raise BrokenLink(f"{page.source.name}: {link} has a scheme that no page needs")
        fragment = f"#{parts.fragment}" if parts.fragment else ""
        if not parts.path:
            return fragment
        path = (page.source.parent / parts.path).resolve()
        if path in self.pages:
            return self.pages[path].file + fragment
        if not path.exists() or not path.is_relative_to(self.root):
            raise BrokenLink(f"{page.source.name}: {link} leads nowhere")
        return self._brought(path) + fragment

    def _brought(self, path: Path) -> str:
        """The address of a file, or of a list of the files of a folder, that lies beside the pages."""
        name = f"files/{path.relative_to(self.root).as_posix()}"
        if path.is_file():
            (self.out / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, self.out / name)
            return name
        files = sorted(
            found for found in path.rglob("*") if found.is_file() and "__pycache__" not in found.parts
        )
        items = []
        for file in files:
            self._brought(file)
            relative = escape(file.relative_to(path).as_posix())
            items.append(f'<li><a href="{relative}">{relative}</a></li>')
        (self.out / name / "index.html").write_text(
            f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{escape(path.name)}</title>'
            f"<h1>{escape(path.name)}</h1><ul>{''.join(items)}</ul></html>\n",
            encoding="utf-8",
        )
        return f"{name}/index.html"


def _text(inline: Token) -> str:
    """What readers see of a piece of text."""
    breaks = ("softbreak", "hardbreak")
    text = "".join(" " if child.type in breaks else child.content for child in inline.children or [])
    return re.sub(r"\s+", " ", text).strip()


class _Addresses(HTMLParser):
    """The anchors of a page, what it links to, and what a browser loads for it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name == "id" and value:
                self.anchors.add(value)
            elif name == "href" and value and tag == "a":
                self.links.append(value)
            elif name in ("href", "src") and value:
                self.loads.append(value)


def broken(site: Path) -> list[str]:
    """What of a site leads nowhere or is loaded from another host, one sentence each."""
    found = {path: _Addresses(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    wrong = []
    for path, addresses in found.items():
        for link in addresses.links + addresses.loads:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in addresses.loads:
                    wrong.append(f"{path.name} loads {link} from elsewhere")
                continue
            target = (path.parent / parts.path).resolve() if parts.path else path
            if not target.is_file():
                wrong.append(f"{path.name}: {link} leads nowhere")
            elif parts.fragment and target in found and parts.fragment not in found[target].anchors:
                wrong.append(f"{path.name}: {link} names no heading")
    return wrong


def main() -> None:
    """Build it into a folder."""
    out = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "docs").resolve()
    site = Site(ROOT, out)
    try:
        site.build()
    except BrokenLink as error:
        raise SystemExit(str(error)) from None
    print(f"{len(site.pages)} pages, {len(site.entries)} entries of the search in {out}")


if __name__ == "__main__":
    main()
