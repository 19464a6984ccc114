"""Dead letters over REST: listed, opened, replayed, discarded and fetched, by whom, and with what trace."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from protocol.refusals import NO_BROKER, NO_LETTER_CHOSEN, NO_SUCH_LETTER, Refusal
from protocol.storage import Letter
from svc.runtime.clock import now
from svc.store.accounts.projects import ProjectStore
from svc.store.postgres.database import Database
from svc.store.spans.dead_letters import DeadLetterStore
from tests.front.people import PROJECT, Answer, Browser, NoProcess, Replica, replica
from tests.store.spans.test_writing import one
from tests.wire import request

LETTERS = PROJECT + "/dead-letters"
SECRET = "AKIA" + "QYLPMN5HHHFPZAM2"


def letter(number: int, reason: str = "too wide") -> Letter:
    span = one(number, name="ask", attributes={"note": SECRET})
    body = request(span, resource={"service.name": "shop"}).SerializeToString()
    return Letter(1, reason, body, now(), 1)


class OnBroker(NoProcess):
    """A process in broker mode with two letters in its topic."""

    broker = True

    async def bring_home(self) -> int:
        return 2


@pytest.fixture
async def process() -> NoProcess:
    return NoProcess()


@pytest.fixture
async def here(store: Database, process: NoProcess) -> AsyncIterator[Replica]:
    async with replica(store, replays=process) as found:
        await ProjectStore(store).make_default()
        await DeadLetterStore(store).bury(
            [letter(1), letter(2), letter(3, "no batch"), Letter(2, "another project's", b"", now(), 1)]
        )
        yield found


@pytest.fixture
async def owner(here: Replica) -> Browser:
    return await here.owner()


def refused(refusal: Refusal) -> tuple[int, str, str]:
    return refusal.status, refusal.code, refusal.message


async def test_letters_are_listed_by_page_with_their_reasons(owner: Browser) -> None:
    first = (await owner.get(LETTERS + "?limit=2")).data
    assert [(one["id"], one["reason"], one["service"]) for one in first["letters"]] == [
        (3, "no batch", "shop"),
        (2, "too wide", "shop"),
    ]
    assert [(one["reason"], one["letters"]) for one in first["reasons"]] == [("too wide", 2), ("no batch", 1)]
    rest = (await owner.get(f"{LETTERS}?limit=2&cursor={first['next_cursor']}")).data
    assert ([one["id"] for one in rest["letters"]], rest["next_cursor"]) == ([1], None)
    of_one = (await owner.get(LETTERS + "?reason=no+batch")).data
    assert [one["id"] for one in of_one["letters"]] == [3]
    # A cursor of another list reads as none; what nobody knows is refused.
    assert len((await owner.get(LETTERS + "?cursor=stale")).data["letters"]) == 3
    assert (await owner.get(LETTERS + "?limit=101")).status == 400
    assert (await owner.get(LETTERS + "?order=odd")).status == 400


async def test_a_letter_is_opened_with_its_secrets_masked(owner: Browser, store: Database) -> None:
    whole = await owner.get(LETTERS + "/1")
    (span,) = whole.data["holds"]
    assert (span["name"], span["resource"]["service.name"], whole.data["fault"]) == ("ask", "shop", None)
    assert SECRET not in str(whole.body)
    for wrong in ("4", "0", "x", "-1", "9" * 18, "9" * 30, "0" * 25 + "1"):
        assert (await owner.get(f"{LETTERS}/{wrong}")).refused == refused(NO_SUCH_LETTER)
    await DeadLetterStore(store).bury([Letter(1, "no", b"\xff", now(), 1)])
    await DeadLetterStore(store).bury([Letter(1, "no", bytes(8 * 1024 * 1024 + 1), now(), 1)])
    assert (await owner.get(LETTERS + "/5")).data["fault"]
    large = await owner.get(LETTERS + "/6")
    assert (large.status, "8.0 MiB are not opened here" in large.refused[2]) == (413, True)


async def test_letters_are_replayed_and_discarded_and_the_audit_says_so(
    owner: Browser, process: NoProcess
) -> None:
    done = await owner.post(LETTERS + "/replay", {"reason": "no batch"})
    assert done.data == {"letters": 1, "stored": 1, "refused": 0, "left": 0}
    assert [batch.body for batch in process.written] == [letter(3).body]
    assert (await owner.post(LETTERS + "/discard", {"ids": [1, 4]})).data == {"letters": 1}
    assert (await owner.post(LETTERS + "/replay", {"all": True})).data["letters"] == 1
    assert (await owner.post(LETTERS + "/discard", {"all": True})).data == {"letters": 0}
    assert process.gone_spans == 3
    audit = (await owner.get(PROJECT + "/api-keys/audit")).data["rows"]
    told = [(row["action"], row["subject_id"], row["details"]["letters"]) for row in audit]
    assert told[:3] == [
        ("dead_letter.replay", "all", 1),
        ("dead_letter.discard", "several", 1),
        ("dead_letter.replay", "all", 1),
    ]


@pytest.mark.parametrize(
    "body", [{}, {"all": False}, {"ids": [1], "all": True}, {"ids": [1], "reason": "too wide"}], ids=str
)
@pytest.mark.parametrize("verb", ["replay", "discard"])
async def test_just_one_choice_is_taken(owner: Browser, verb: str, body: dict[str, Any]) -> None:
    assert (await owner.post(f"{LETTERS}/{verb}", body)).refused == refused(NO_LETTER_CHOSEN)


async def test_a_choice_is_bounded(owner: Browser) -> None:
    wrongs: list[dict[str, Any]] = [{"ids": []}, {"ids": [0]}, {"ids": [1] * 1_001}, {"reason": "x" * 10_001}]
    for wrong in wrongs:
        assert (await owner.post(LETTERS + "/replay", wrong)).status == 400, wrong
    assert len((await owner.get(LETTERS)).data["letters"]) == 3


async def test_letters_are_fetched_from_a_broker_by_those_who_administer(
    here: Replica, owner: Browser, store: Database
) -> None:
    assert (await owner.post(LETTERS + "/fetch")).refused == refused(NO_BROKER)
    async with replica(store, replays=OnBroker()) as other:
        there = other.browser()
        assert (await there.sign_in("owner@example.org")).status == 200
        assert (await there.post(LETTERS + "/fetch")).data == {"letters": 2}


async def test_each_role_and_key_does_what_it_may(here: Replica, owner: Browser) -> None:
    def statuses(answers: list[Answer]) -> list[int]:
        return [answer.status for answer in answers]

    async def tried(who: Browser) -> list[Answer]:
        return [
            await who.get(LETTERS),
            await who.get(LETTERS + "/1"),
            await who.post(LETTERS + "/replay", {"ids": [9]}),
            await who.post(LETTERS + "/discard", {"ids": [9]}),
            await who.post(LETTERS + "/fetch"),
        ]

    assert statuses(await tried(owner)) == [200, 200, 200, 200, 409]
    member = await here.member("m@example.org", "member", owner)
    assert statuses(await tried(member)) == [200, 200, 200, 200, 403]
    viewer = await here.member("v@example.org", "viewer", owner)
    assert statuses(await tried(viewer)) == [200, 200, 403, 403, 403]
    assert statuses(await tried(here.browser())) == [401] * 5
    for scope, expected in (
        ("admin", [200, 200, 200, 200, 403]),
        ("query", [200, 200, 403, 403, 403]),
        ("write", [403] * 5),
    ):
        holder = here.browser(key=await here.token(scope))
        assert statuses(await tried(holder)) == expected, scope
