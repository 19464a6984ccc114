"""Laws of the encoder's client: what goes into one call, and what is no answer."""

from __future__ import annotations

import pytest

from svc.outside.encoder import CALL_BYTES, CALL_TEXTS, Encoder, EncoderBusy
from svc.outside.http import Unreached
from tests.outside.encoder import encoder_service


async def test_each_text_gets_its_score_in_calls_of_512_and_8_mb_at_most() -> None:
    with encoder_service() as service:
        encoder = Encoder(service.url + "/", "key-1")
        texts = ["useless" if n % 3 == 0 else "fine" for n in range(1_100)]
        scores = await encoder.classify("frustration", texts)
        assert [score > 0.5 for score in scores] == [n % 3 == 0 for n in range(1_100)]
        assert [len(call["texts"]) for call in service.calls] == [CALL_TEXTS, CALL_TEXTS, 76]
        assert {call["head"] for call in service.calls} == {"frustration"}
        assert set(service.keys) == {"Bearer key-1"}
        service.calls.clear()
        service.sizes.clear()
        # Quotes are two bytes each on the wire.
        await encoder.classify("frustration", ['"' * 1_500_000] * 5)
        assert [len(call["texts"]) for call in service.calls] == [2, 2, 1]
        assert max(service.sizes) <= CALL_BYTES


async def test_pairs_go_as_pairs_and_nothing_asks_nothing() -> None:
    with encoder_service() as service:
        encoder = Encoder(service.url)
        assert await encoder.classify("groundedness", [("Paris is", "Paris"), ("Rome is", "Paris")]) == [
            0.9,
            0.02,
        ]
        assert service.calls == [
            {"head": "groundedness", "pairs": [["Paris is", "Paris"], ["Rome is", "Paris"]]}
        ]
        assert await encoder.classify("groundedness", []) == []
        assert service.keys == [None]


async def test_a_busy_service_is_left_alone_for_as_long_as_it_says() -> None:
    with encoder_service() as service:
        service.statuses.append(429)
        with pytest.raises(EncoderBusy) as busy:
            await Encoder(service.url).classify("frustration", ["a"])
        assert busy.value.rest_s == 7


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b'{"scores": []}', b'{"scores": [2]}', b'{"scores": ["high"]}', b"[" * 100_000],
)
async def test_what_is_no_score_is_no_answer(body: bytes) -> None:
    with encoder_service() as service:
        service.body = body or b"\n"
        with pytest.raises(Unreached):
            await Encoder(service.url).classify("frustration", ["a"])


async def test_any_other_status_is_no_answer() -> None:
    with encoder_service() as service:
        service.statuses.append(500)
        with pytest.raises(Unreached, match="answers 500"):
            await Encoder(service.url).classify("frustration", ["a"])
