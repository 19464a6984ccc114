"""Reading attribute values of any type as text, a count, money or JSON, or finding them absent.

Owns: `text`, `present`, `unquoted`, `count`, `money`, `milliseconds`, `decoded` and the cutting of text to
fit a column. The dialects, the reading of messages and the mapper call them on the hot path. Never raises
over what a client sent.
"""

from __future__ import annotations

import hashlib
import json
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import msgspec

from protocol.text import clean

#: Counts above this are not tokens: doubles, which JavaScript sends, are exact no further.
MAX_COUNT: Final = 2**53
#: Costs from here on are not money somebody paid for one call.
COST_BOUND: Final = Decimal(10) ** 9
#: The smallest part of a dollar that is kept.
COST_STEP: Final = Decimal("1e-12")
#: The longest text a narrow column or an index entry gets.
NAME_CHARS: Final = 200
#: An error message is cut here.
MESSAGE_CHARS: Final = 1000
_KEPT_CHARS: Final = 160
_DAY_MS: Final = 86_400_000


def text(value: Any) -> str | None:
    """A name or an identifier: text that is not blank, or a number written out; anything else is absent."""
    if type(value) is str:
        return value if value and not value.isspace() else None
    if type(value) is int:
        return str(value) if abs(value) < 10**40 else None
    if type(value) is float and abs(value) <= MAX_COUNT:
        return str(int(value)) if value.is_integer() else str(value)
    return None


def present(value: Any) -> Any:
    """Any value but null and the empty string, which exporters write for "nothing"."""
    return None if value is None or value == "" else value


def unquoted(value: Any) -> Any:
    """A text that was written as JSON text without its quotes; anything else as it is."""
    if type(value) is str and len(value) > 1 and value[0] == value[-1] == '"':
        try:
            return msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeError):
            return value
    return value


def present_unquoted(value: Any) -> Any:
    """Any value but null and the empty string, plain text too where all of it is written as JSON."""
    return present(unquoted(value))


def text_unquoted(value: Any) -> str | None:
    """A name or an identifier that may be written as JSON text."""
    return text(unquoted(value))


def count(value: Any) -> int | None:
    """A number of tokens: an integer, an integral double or the text of either, from 0 to 2**53."""
    if type(value) is int:
        return value if 0 <= value <= MAX_COUNT else None
    if type(value) is float:
        return int(value) if 0 <= value <= MAX_COUNT and value.is_integer() else None
    if type(value) is str and len(value) <= 32 and value.isascii() and "_" not in value:
        try:
            return count(int(value))
        except ValueError:
            pass
        try:
            return count(float(value))
        except ValueError:
            return None
    return None


def money(value: Any) -> Decimal | None:
    """US dollars with at most 12 fractional digits, from 0 to below a billion; anything else is absent."""
    if type(value) is float:
        value = repr(value)
    if type(value) is str:
        if len(value) > 40 or "_" in value:
            return None
        try:
            amount = Decimal(value)
        except InvalidOperation:
            return None
    elif type(value) is int:
        amount = Decimal(value)
    else:
        return None
    if not (amount.is_finite() and 0 <= amount < COST_BOUND):
        return None
    return abs(amount.quantize(COST_STEP))


def milliseconds(value: Any, unit_ms: int) -> float | None:
    """A length of time given in units of so many milliseconds; from 0 to a day, anything else is absent."""
    if type(value) is str and len(value) <= 32:
        try:
            value = float(value)
        except ValueError:
            return None
    if type(value) is not float and type(value) is not int:
        return None
    return round(value * unit_ms, 3) if 0 <= value * unit_ms <= _DAY_MS else None


def decoded(value: Any) -> Any:
    """The object or array that a text attribute holds as JSON, or None; lone surrogates become U+FFFD.

    A value that came structured passes as it is, so that both encodings read alike.
    """
    if type(value) is not str:
        return value if type(value) in (dict, list) else None
    head = value[:1]
    if head != "[" and head != "{" and value.lstrip()[:1] not in ("[", "{"):
        return None
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        pass
    # What msgspec refuses though Python clients write it: NaN, lone surrogates, numbers beyond a double.
    try:
        return _mended(json.loads(value))
    except (ValueError, RecursionError):
        return None


def _mended(value: Any) -> Any:
    if type(value) is str:
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if type(value) is list:
        return [_mended(item) for item in value]
    if type(value) is dict:
        return {_mended(key): _mended(item) for key, item in value.items()}
    return value


def name(value: str) -> str:
    """A name as it is stored: cleaned and cut at 200 characters."""
    return clean(value[:NAME_CHARS])


def identifier(value: str) -> str:
    """An identifier as it is stored: long ones are cut, and a hash of the whole keeps them apart."""
    if len(value) > NAME_CHARS:
        digest = hashlib.sha256(value.encode("utf-8", "replace")).hexdigest()
        value = f"{value[:_KEPT_CHARS]}…{digest[:16]}"
    return clean(value)
