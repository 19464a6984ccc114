"""Arrays as the engines hold them.

Owns: the names of their types. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from svc.domain.lazy_numpy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: An array of whole numbers: slots, bins, counts.
Ints: TypeAlias = "NDArray[np.int64]"
#: An array of real numbers.
Floats: TypeAlias = "NDArray[np.float64]"
#: An array of yes and no.
Flags: TypeAlias = "NDArray[np.bool_]"
