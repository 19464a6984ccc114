"""The model that is asked where nobody names one: the newest of its kind on the provider's own list.

Called by `provider.py` for the machine's own provider. A name that stands in a release is retired one day,
and every install with it; the provider's list holds what can be asked now. Pure: who asks is `provider.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

#: Of the vendor's models the kind that does this work well at a bearable price.
KIND: Final = "sonnet"
#: Where the vendor's API lists its models.
VENDOR_PATH: Final = "/v1/models?limit=1000"
#: Where the cloud lists what may be invoked in a region, beside the address that invokes it.
CLOUD_PATH: Final = "/inference-profiles?maxResults=1000&type=SYSTEM_DEFINED"

_NUMBERS: Final = re.compile(r"\d+")


def newest_of_vendor(listing: Any) -> str | None:
    """The newest model of the kind on the vendor's list, None where there is none."""
    return _newest((row["id"], row.get("created_at")) for row in listing["data"])


def newest_of_cloud(listing: Any) -> str | None:
    """The newest such model that the region may invoke; by way of all regions before some."""
    active = [
        (row["inferenceProfileId"], row.get("createdAt"))
        for row in listing["inferenceProfileSummaries"]
        if row.get("status") == "ACTIVE" and "anthropic.claude" in row["inferenceProfileId"]
    ]
    return _newest(row for row in active if row[0].startswith("global.")) or _newest(active)


def _newest(rows: Iterable[tuple[str, Any]]) -> str | None:
    # By the day that it came out, which some names hold and some do not, then by its version.
    candidates = [
        (str(day or ""), [*map(int, _NUMBERS.findall(id_))], id_) for id_, day in rows if KIND in id_
    ]
    return max(candidates)[2] if candidates else None
