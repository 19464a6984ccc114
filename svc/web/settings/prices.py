"""Prices: what each model that the project calls costs, which have no price, and a form in each row.

Prices of the project go through the handlers of the REST API. With `?preview=1` the page looks at some of the
stored history and says what present prices would change of it; changing it is the command's
(`trace-svc reprice --apply`). With `?edit=MODEL&of=PROVIDER` the row of that model holds its form.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import attrs
import msgspec

from protocol.refusals import Refusal
from protocol.rest.prices import PricesChange
from protocol.storage import Slow
from svc.domain.pricing.prices import PriceBook
from svc.domain.pricing.project_prices import ModelPrice, price_key, ranked_prices
from svc.front.api.settings.prices import get_prices, put_prices
from svc.store.reads.usage.models import ModelReads, ModelUse
from svc.store.spans.project_prices import ProjectPriceStore
from svc.store.spans.reprice_preview import preview
from svc.web.settings.settings_text import AMOUNTS, WHEN_BLANK, price_faults
from svc.web.shell import words
from svc.web.shell.forms import asked
from svc.web.shell.page import PROJECT, Go, Html, PageRoute, Visit

TIMEOUT_S: Final = 8.0
#: How far back calls are looked for; when that takes too long, only this far.
BACK: Final = timedelta(days=30)
BACK_NARROWED: Final = timedelta(days=1)
#: Models of the snippet for the price file.
_IN_SNIPPET: Final = 20
#: Prices are said for a million tokens, and asked for a thousand: some rise with the length of a prompt.
_ASKED: Final = 1000
_MILLION: Final = Decimal(1_000_000 // _ASKED)


class PriceForm(msgspec.Struct):
    """The price of one model as it was typed."""

    model: str = ""
    provider: str = ""
    input: str = ""
    cache_read: str = ""
    cache_write: str = ""
    cache_write_1h: str = ""
    output: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """What it is for."""
        return price_key(self.model, self.provider)

    def fields(self) -> dict[str, Any]:
        """The price that it asks for."""
        return {
            "model": self.model,
            "provider": self.provider.strip() or None,
            "input": self.input.strip(),
            "output": self.output.strip(),
            "cache_read": self.cache_read.strip() or None,
            "cache_write": self.cache_write.strip() or None,
            "cache_write_1h": self.cache_write_1h.strip() or None,
        }


@attrs.frozen
class PricedModel:
    """A model with what a million tokens of each kind cost, in USD; None where nobody knows. `own`: the
    project's price."""

    use: ModelUse
    input: Decimal | None
    output: Decimal | None
    cache_read: Decimal | None
    cache_write: Decimal | None
    cache_write_1h: Decimal | None
    own: ModelPrice | None = None

    @property
    def priced(self) -> bool:
        """Whether there is a price."""
        return self.input is not None or self.output is not None

    @property
    def key(self) -> tuple[str, str]:
        """What its price is for."""
        return price_key(self.use.name, self.use.provider)

    @property
    def form(self) -> PriceForm:
        """What the form of its price begins with: the price that holds now."""

        def typed(amount: Decimal | None) -> str:
            return "" if amount is None else words.typed(amount)

        own = self.own
        # From the cache, what costs as much as input need not be typed.
        cache_read = own.cache_read if own else None if self.cache_read == self.input else self.cache_read
        cache_write = own.cache_write if own else None if self.cache_write == self.input else self.cache_write
        return PriceForm(
            self.use.name,
            self.use.provider or "",
            typed(self.input),
            typed(cache_read),
            typed(cache_write),
            typed(own.cache_write_1h if own else self._cache_write_1h(cache_write)),
            typed(self.output),
        )

    def _cache_write_1h(self, cache_write: Decimal | None) -> Decimal | None:
        """What the form needs for an hour: None where blank comes to the same."""
        if self.input is None or self.cache_write_1h is None:
            return None
        as_blank = self.input if cache_write is None else 2 * self.input
        return None if self.cache_write_1h == as_blank else self.cache_write_1h


def price_rows(
    book: PriceBook, used: Iterable[ModelUse], own: Sequence[ModelPrice], moment: datetime
) -> list[PricedModel]:
    """One row for each model of each provider, in the order given; then prices of what was not called."""
    uses: dict[tuple[str, str], ModelUse] = {}
    for use in used:
        key = price_key(use.name, use.provider)
        uses[key] = _added(uses[key], use) if key in uses else use
    own_by_key = {price.key: price for price in own}
    for key, price in own_by_key.items():
        uses.setdefault(key, ModelUse(price.provider, price.model, None, 0, 0, 0, 0, None))
    return [_priced(book, use, own_by_key.get(key), moment) for key, use in uses.items()]


def _added(use: ModelUse, more: ModelUse) -> ModelUse:
    """Calls before and after a model had a price are counted apart; here they are one."""
    costs = [cost for cost in (use.cost, more.cost) if cost is not None]
    return attrs.evolve(
        use,
        model_id=use.model_id or more.model_id,
        calls=use.calls + more.calls,
        unpriced=use.unpriced + more.unpriced,
        given=use.given + more.given,
        tokens=use.tokens + more.tokens,
        cost=sum(costs) if costs else None,
    )


def _priced(book: PriceBook, use: ModelUse, own: ModelPrice | None, moment: datetime) -> PricedModel:
    def million(*buckets: str) -> Decimal | None:
        tokens: dict[str, Any] = dict.fromkeys(buckets, _ASKED)
        cost = book.price(provider=use.provider, model=use.name, at=moment, **tokens)
        return None if cost.total_cost is None else cost.total_cost * _MILLION

    return PricedModel(
        use,
        million("input_tokens"),
        million("output_tokens"),
        million("cache_read_tokens"),
        million("cache_write_tokens"),
        million("cache_write_tokens", "cache_write_1h_tokens"),
        own,
    )


async def prices(visit: Visit) -> Html:
    """The page."""
    return await _page(visit)


async def _page(visit: Visit, refusal: Refusal | None = None) -> Html:
    now, back = visit.means.now(), BACK
    reads = ModelReads(visit.means.questions)
    try:
        used = await reads.used(visit.project.id, now - back, TIMEOUT_S)
    except Slow:
        back = BACK_NARROWED
        used = await reads.used(visit.project.id, now - back, TIMEOUT_S)
    own = await ProjectPriceStore(visit.means.database).of(visit.project.id)
    # From the store, not from what decoders go by: that is a few seconds old.
    book = visit.process_view.prices.behind(ranked_prices(own))
    models = price_rows(book, used, own, now)
    missing = [model for model in models if not model.priced and model.use.unpriced]
    wrong = {} if refusal is None else price_faults(refusal, visit.form.fields())
    context: dict[str, Any] = {
        "models": models,
        "missing": missing,
        "version": book.version,
        "back": back,
        "tab": "prices",
        "snippet": _snippet(missing),
        "preview": None,
        "edited": _edited(visit, refusal),
        "typed": visit.form if refusal else None,
        "wrong": wrong,
        "focused": next(iter(wrong), "input"),
        "amounts": AMOUNTS,
        "when_blank": WHEN_BLANK,
        "administers": visit.administers,
    }
    if visit.query.get("preview"):
        repricing = await preview(visit.means.questions, visit.project.id, book)
        context["preview"] = repricing
        context["change"] = repricing.progress.after.cost - repricing.progress.before.cost
    return Html("settings/prices", context, status=refusal.status if refusal else 200)


def _edited(visit: Visit, refusal: Refusal | None) -> tuple[str, str] | None:
    """Which row holds its form."""
    if not visit.administers:
        return None
    if refusal is not None:
        key: tuple[str, str] = visit.form.key
        return key
    model = visit.query.get("edit")
    return price_key(model, visit.query.get("of")) if model else None


def _snippet(missing: list[PricedModel]) -> str:
    """The tables of a price file for these models, to be filled in."""
    tables = []
    for model in missing[:_IN_SNIPPET]:
        name = json.dumps(model.use.name[:200], ensure_ascii=False)
        provider = f"\nprovider = {json.dumps(model.use.provider[:200])}" if model.use.provider else ""
        tables.append(f"[[price]]\nmodel = {name}{provider}\ninput = 0.00\noutput = 0.00\n")
    return "\n".join(tables)


async def keep(visit: Visit) -> Html | Go:
    """Set the price of one model, or replace it."""
    form: PriceForm = visit.form
    return await _replace(visit, [*await _others(visit, form), form.fields()])


async def remove(visit: Visit) -> Html | Go:
    """Let a model cost what the service says again."""
    return await _replace(visit, await _others(visit, visit.form))


async def _others(visit: Visit, form: PriceForm) -> list[dict[str, Any]]:
    stored = (await get_prices(visit.call)).prices
    return [
        msgspec.structs.asdict(price)
        for price in stored
        if price_key(price.model, price.provider) != form.key
    ]


async def _replace(visit: Visit, fields: list[dict[str, Any]]) -> Html | Go:
    answer = await asked(visit, put_prices, PricesChange, {"prices": fields})
    return await _page(visit, answer) if isinstance(answer, Refusal) else Go(visit.base + "/prices")


PAGES: Final = (
    PageRoute("GET", PROJECT + "/prices", "ORG_VIEW", prices),
    PageRoute("POST", PROJECT + "/prices", "ORG_ADMIN", keep, form=PriceForm),
    PageRoute("POST", PROJECT + "/prices/remove", "ORG_ADMIN", remove, form=PriceForm),
)
