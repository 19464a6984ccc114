"""Templates to responses: Jinja, the headers of every page, entity tags, compression.

Every expression is escaped, and characters that nobody sees show as marks. What only lays a template out is
not sent: spaces beside the tags of blocks, and at the beginning of a line. Secrets: a page that shows one is
`no-store`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode
from zlib import MAX_WBITS, compressobj

import attrs
import trio
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.meta import find_referenced_templates
from markupsafe import Markup
from quart import Response

from svc.web.shell import words
from svc.web.shell.assets import Assets
from svc.web.shell.filters import Token
from svc.web.shell.page import BYTES, Download, Go, Html, Sent
from svc.web.shell.settings_pages import seen_groups

ROOMS: Final = Path(__file__).parent.parent

#: Documents are made ready beside the loop that serves everybody, one at a time.
packers: Final = trio.CapacityLimiter(1)

#: web.md's own list: nothing from elsewhere, nothing inline.
POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "media-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    # A page that opens ours, or that ours opens, holds no handle on it.
    "cross-origin-opener-policy": "same-origin",
    # `no-referrer` would make the Origin of our own forms `null`.
    "referrer-policy": "same-origin",
    "x-frame-options": "DENY",
}
#: Pictures and sounds: they hardly get smaller, and a browser that shows one alone styles it by itself.
_MEDIA: Final = ("image/", "audio/")
#: One range of bytes from a place on; any other is answered with the whole, as is allowed.
_RANGE: Final = re.compile(r"bytes=(\d{1,12})-(\d{1,12})?", re.ASCII)
_MEDIA_POLICY: Final = POLICY.replace("style-src 'self'", "style-src 'unsafe-inline'")
#: Attributes that hold paths of ours. Quotes of what others sent are escaped, so it holds no attribute.
_LINK: Final = re.compile(
    r"([ \n](?:href|src|action|formaction"
    r'|data-(?:address|drawing|explain|lazy|lights|load|mint|more|not|pane|pulse|rail|views))=")/(?!/)'
)
#: Elements beside whose tags whitespace shows nothing.
BLOCKS: Final = frozenset(
    {
        "article",
        "aside",
        "blockquote",
        "body",
        "caption",
        "col",
        "colgroup",
        "datalist",
        "dd",
        "details",
        "dialog",
    }
    | {"div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3"}
    | {"h4", "h5", "h6", "head", "header", "hr", "html", "legend", "li", "link", "main"}
    | {"meta", "nav", "ol", "optgroup", "option", "p", "search", "section", "summary", "table", "tbody"}
    | {"td", "template", "tfoot", "th", "thead", "title", "tr", "ul"}
)
_NAMES: Final = "|".join(sorted(BLOCKS))
#: What a tag holds: its attributes, and in them whatever Jinja has.
_INSIDE: Final = r"\{\{(?:(?!\}\}).)*\}\}|\{%(?:(?!%\}).)*%\}|[^<>{}]"
#: A comment, which stays as it is; a tag before a line break; a line break before a tag.
_BESIDE: Final = re.compile(
    rf"(?P<kept>\{{#.*?#\}})|(?P<tag></(?:{_NAMES})>|<(?:{_NAMES})(?:[\s{{](?:{_INSIDE})*)?>)\n"
    rf"|\n(?=</?(?:{_NAMES})\b)",
    re.S,
)
#: Smaller bodies gain nothing.
_COMPRESSED_BYTES: Final = 1024
#: Larger ones are compressed and digested in a thread: 1 MB of a list takes 6 ms of CPU (2026-11).
_THREADED_BYTES: Final = 1 << 18


@attrs.frozen
class Asked:
    """What of a request decides how its answer is sent."""

    etag: str | None
    gzip: bool
    #: The first and the last byte that are wanted, the last one where it is said.
    byte_range: tuple[int, int | None] | None = None

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> Asked:
        """From its headers, in lower case."""
        match = _RANGE.fullmatch(headers.get("range", ""))
        byte_range = (int(match[1]), int(match[2]) if match[2] else None) if match else None
        return cls(headers.get("if-none-match"), "gzip" in headers.get("accept-encoding", ""), byte_range)


def _finalize(value: Any) -> Any:
    return words.visible(value) if type(value) is str else value


def query(path: str, **parameters: Any) -> str:
    """A path with a query; parameters without a value are left out."""
    fields = {name.rstrip("_"): value for name, value in parameters.items() if value not in (None, "")}
    return f"{path}{'&' if '?' in path else '?'}{urlencode(fields)}" if fields else path


def _token(name: str, value: str) -> str:
    """A value of a field as the filter bar has it, whatever characters it holds."""
    return str(Token(name, value))


def without_layout(text: str) -> str:
    """A template with as many lines: each line break that goes is left in a comment, for messages."""
    lines = re.sub(r"\n[ \t]+", "\n", text)
    return _BESIDE.sub(lambda found: found["kept"] or f"{found['tag'] or ''}{{#\n#}}", lines)


class _Templates(FileSystemLoader):
    """Loads templates without their layout."""

    def get_source(self, environment: Environment, template: str) -> tuple[str, str, Callable[[], bool]]:
        """The source, the file and whether it is still the same."""
        text, filename, is_current = super().get_source(environment, template)
        return without_layout(text), filename, is_current


def _environment(assets: Assets) -> Environment:
    environment = Environment(
        loader=_Templates(ROOMS),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.globals |= {
        "words": words,
        "static": assets.url,
        "address": query,
        "token": _token,
        "settings_groups": seen_groups,
    }
    # As it is, escaped: for the value of a field, which goes back as it came.
    environment.filters["exactly"] = lambda text: Markup.escape(text)
    environment.filters["segment"] = lambda text: quote(str(text), safe="")
    return environment


class Renderer:
    """Makes responses. Templates are compiled once, in a thread: a page and its parts take 60 to 100 ms."""

    def __init__(self, assets: Assets, base_path: str = "") -> None:
        self.assets, self._base_path = assets, base_path
        self._environment = _environment(assets)
        self._compiled: set[str] = set()

    async def _compile(self, template: str) -> None:
        if template not in self._compiled:
            known = frozenset(self._compiled)
            self._compiled.update(await trio.to_thread.run_sync(self._compile_all, template, known))

    def _compile_all(self, template: str, known: frozenset[str]) -> set[str]:
        """Compile a template and all that it names; those that were not `known`. jinja2 locks its cache."""
        environment, names, compiled = self._environment, [template], set[str]()
        assert environment.loader is not None
        while names:
            name = names.pop()
            if name in compiled or name in known:
                continue
            compiled.add(name)
            source = environment.loader.get_source(environment, name)[0]
            names += [part for part in find_referenced_templates(environment.parse(source)) if part]
            environment.get_template(name)
        return compiled

    def html(self, template: str, context: Mapping[str, Any]) -> str:
        """A template with its context."""
        text = self._environment.get_template(template).render(context)
        return _LINK.sub(rf"\1{self._base_path}/", text) if self._base_path else text

    async def shown(self, answer: Html, context: Mapping[str, Any], negotiation: Asked) -> Response:
        """A page, or 304 when the browser has it already."""
        template = f"{answer.template}.html"
        await self._compile(template)
        body = self.html(template, {**context, **answer.context}).encode("utf-8", "replace")
        response = await self._sent(
            body, "text/html; charset=utf-8", negotiation, answer.status, secret=answer.secret
        )
        if answer.retry_after_s is not None:
            response.headers["retry-after"] = str(answer.retry_after_s)
        if answer.form_targets:
            response.headers["content-security-policy"] = POLICY.replace(
                "form-action 'self'", f"form-action 'self' {answer.form_targets}"
            )
        if not answer.part:
            response.headers["speculation-rules"] = json.dumps(
                self._base_path + self.assets.url("speculation.json")
            )
        return _with_cookies(response, answer.cookies)

    async def sent(self, answer: Sent, negotiation: Asked) -> Response:
        """A document that is no page. A download is text or bytes, and is never opened here."""
        is_text = answer.file_name is not None and answer.content_type != BYTES
        content_type = "text/plain; charset=utf-8" if is_text else answer.content_type
        response = await self._sent(
            answer.body, content_type, negotiation, 200, secret=answer.secret, etag=answer.etag
        )
        if content_type.startswith(_MEDIA):
            response.headers["content-security-policy"] = _MEDIA_POLICY
            _in_range(response, answer.body, negotiation)
        if answer.file_name is not None:
            response.headers["content-disposition"] = f"attachment; filename={json.dumps(answer.file_name)}"
        return response

    def download(self, answer: Download) -> Response:
        """A file that is sent while it is made."""
        headers = {**HEADERS, "cache-control": "no-store"}
        headers["content-disposition"] = f"attachment; filename={json.dumps(answer.file_name)}"
        response = Response(answer.pieces, headers=headers, content_type="text/plain; charset=utf-8")
        response.timeout = answer.timeout_s
        return response

    async def _sent(
        self,
        body: bytes,
        content_type: str,
        negotiation: Asked,
        status: int,
        *,
        secret: bool,
        etag: str | None = None,
    ) -> Response:
        headers = {**HEADERS, "cache-control": "no-store" if secret else "private, no-cache"}
        if status == 200 and not secret:
            # Weak: compressed and plain are one page.
            headers["etag"] = f'W/"{etag or await _digest(body)}"'
            if negotiation.etag is not None and headers["etag"] in negotiation.etag:
                return Response(b"", status=304, headers=headers, content_type=None)
        if negotiation.gzip and len(body) >= _COMPRESSED_BYTES and not content_type.startswith(_MEDIA):
            if len(body) >= _THREADED_BYTES:
                body = await trio.to_thread.run_sync(_compressed, body, limiter=packers)
            else:
                body = _compressed(body)
            headers["content-encoding"] = "gzip"
        headers["vary"] = "accept-encoding, cookie"
        return Response(body, status=status, headers=headers, content_type=content_type)

    def gone(self, answer: Go) -> Response:
        """A redirect."""
        headers = {**HEADERS, "location": answer.location, "cache-control": "no-store"}
        return _with_cookies(Response(b"", status=303, headers=headers, content_type=None), answer.cookies)

    def asset(self, digest: str, name: str, negotiation: Asked) -> Response | None:
        """A file, or None when there is none."""
        file = self.assets.files.get(name)
        if file is None:
            return None
        lasting = digest == self.assets.digest
        headers = {
            **HEADERS,
            "cache-control": "public, max-age=31536000, immutable" if lasting else "no-cache",
            "vary": "accept-encoding",
        }
        if negotiation.gzip:
            headers["content-encoding"] = "gzip"
        body = file.packed if negotiation.gzip else file.body
        return Response(body, headers=headers, content_type=file.content_type)


def _in_range(response: Response, body: bytes, negotiation: Asked) -> None:
    """Send the part that was wanted: Safari plays no sound from who answers ranges with the whole."""
    response.headers["accept-ranges"] = "bytes"
    if response.status_code != 200 or negotiation.byte_range is None:
        return
    start, end = negotiation.byte_range
    end = len(body) if end is None else min(end + 1, len(body))
    if start >= end:
        response.status_code = 416
        response.set_data(b"")
        response.headers["content-range"] = f"bytes */{len(body)}"
        return
    response.status_code = 206
    response.set_data(body[start:end])
    response.headers["content-range"] = f"bytes {start}-{end - 1}/{len(body)}"


async def _digest(body: bytes) -> str:
    if len(body) < _THREADED_BYTES:
        return _digest_now(body)
    return await trio.to_thread.run_sync(_digest_now, body, limiter=packers)


def _digest_now(body: bytes) -> str:
    return blake2b(body, digest_size=12).hexdigest()


def _compressed(body: bytes) -> bytes:
    packer = compressobj(1, wbits=MAX_WBITS | 16)
    return packer.compress(body) + packer.flush()


def _with_cookies(response: Response, cookies: tuple[str, ...]) -> Response:
    for cookie in cookies:
        response.headers.add("set-cookie", cookie)
    return response
