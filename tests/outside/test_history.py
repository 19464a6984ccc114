"""Laws of reading another product's API: patient with one that is busy, at its end with one that is gone."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest
import trio

from protocol.importing import FailedQuestion, NotThere, PageTooLarge
from protocol.operator import OperatorError
from protocol.storage import Outage
from svc.outside.history import FAILING_TRIES, HistoryClient
from svc.outside.http import HttpClient
from tests.outside.test_http import serving


class Product:
    """Answers one after the other, the last one for ever; keeps what it was asked."""

    def __init__(self, answers: Sequence[tuple[str, bytes]]) -> None:
        self.answers, self.asked = list(answers), list[bytes]()

    async def __call__(self, stream: trio.SocketStream) -> None:
        self.asked.append(bytes(await stream.receive_some(65536)))
        head, body = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
        length = f"content-length: {len(body)}\r\n\r\n"
        await stream.send_all(f"HTTP/1.1 {head}\r\n{length}".encode() + body)


class Rests:
    """How long was waited, without waiting."""

    def __init__(self) -> None:
        self.s: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.s.append(seconds)


def client(base: str, rests: Rests, *, patience_s: float = 600.0) -> HistoryClient:
    return HistoryClient(
        base,
        {"authorization": "Bearer planted"},
        "PRODUCT_KEY",
        HttpClient(timeout_s=5, answer_bytes=1000),
        rests,
        patience_s,
    )


async def test_it_waits_as_long_as_it_is_asked_to_and_goes_on() -> None:
    product, rests = (
        Product([("429 Slow Down\r\nretry-after: 7", b""), ("503 Busy", b""), ("200 OK", b"{}")]),
        Rests(),
    )
    async with serving(product) as base:
        assert await client(base, rests)("GET", "/a", (("q", "x y"),)) == b"{}"
    assert rests.s == [7.0, 2.0]
    assert product.asked[-1].startswith(b"GET /a?q=x+y HTTP/1.1\r\n")
    assert b"authorization: Bearer planted" in product.asked[-1]


async def test_a_product_that_stays_away_ends_the_run_which_can_be_gone_on_with() -> None:
    product, rests = Product([("502 Gone", b"")]), Rests()
    async with serving(product) as base:
        with pytest.raises(Outage, match=r"answers 502.*run it again to go on"):
            await client(base, rests, patience_s=20)("GET", "/a")
    assert sum(rests.s) <= 20
    with pytest.raises(Outage, match="cannot be reached"):
        await client(base, rests, patience_s=0)("GET", "/a")


async def test_each_wait_is_told_with_its_cause_and_no_secret() -> None:
    product, told = Product([("503 Busy", b""), ("429 Slow\r\nretry-after: 7", b""), ("200 OK", b"{}")]), []
    async with serving(product) as base:
        asking = attrs.evolve(client(base, Rests()), tell=told.append)
        await asking("GET", "/a", (("q", "planted too"),))
    assert told == [
        f"{base}/a answers 503; asking again in 1 s",
        f"{base}/a answers 429; asking again in 7 s",
    ]


async def test_a_product_that_fails_at_a_question_is_believed_after_a_few_tries() -> None:
    product, rests = Product([("500 Oops", b"")]), Rests()
    async with serving(product) as base:
        with pytest.raises(FailedQuestion, match=r"/a answers 500 each of 4 times"):
            await client(base, rests)("GET", "/a")
    assert len(product.asked) == FAILING_TRIES
    assert rests.s == [1.0, 2.0, 5.0]


async def test_a_product_that_fails_now_and_then_is_asked_again() -> None:
    async with serving(Product([("500 Oops", b""), ("500 Oops", b""), ("200 OK", b"{}")])) as base:
        assert await client(base, Rests())("GET", "/a") == b"{}"


@pytest.mark.parametrize(
    ("head", "error", "said"),
    [
        ("401 No", OperatorError, "refuses the credentials \\(401\\); it takes PRODUCT_KEY"),
        ("404 Where", NotThere, "^$"),
        (
            "308 There\r\nlocation: http://169.254.169.254/",
            OperatorError,
            "give the address that it leads to",
        ),
        ("422 What", OperatorError, "answers 422"),
    ],
)
async def test_a_no_that_waiting_does_not_mend_is_said_at_once(
    head: str, error: type[Exception], said: str
) -> None:
    rests = Rests()
    async with serving(Product([(head, b"secret of the other side")])) as base:
        with pytest.raises(error, match=said) as raised:
            await client(base, rests)("GET", "/a")
    assert rests.s == []
    assert "planted" not in str(raised.value)
    assert "secret" not in str(raised.value)


async def test_an_answer_beyond_the_bound_is_not_read() -> None:
    async with serving(Product([("200 OK", b"x" * 1001)])) as base:
        with pytest.raises(PageTooLarge):
            await client(base, Rests())("GET", "/a")
    assert "planted" not in repr(client("http://there", Rests()))


async def for_ever(_seconds: float) -> None:
    await trio.sleep_forever()


async def test_a_wait_that_is_cancelled_ends_at_once() -> None:
    async with serving(Product([("503 Busy", b"")])) as base:
        with trio.move_on_after(1) as scope:
            await HistoryClient(base, {}, "", rest=for_ever)("GET", "/a")
    assert scope.cancelled_caught
