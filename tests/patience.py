"""How long tests wait for what must come: so long that only what hangs is given up, whatever else the machine does."""

from __future__ import annotations

import os

#: The variable that multiplies every time-out of the tests, for a machine that is very slow or very busy.
VARIABLE = "ANABRANCH_TEST_PATIENCE"
FACTOR = float(os.environ.get(VARIABLE, "1"))


def patient(seconds: float) -> float:
    """A time-out of so many seconds, by a usual machine's clock."""
    return seconds * FACTOR


#: A process, a thread or an event that has not come by then hangs.
HANG_S = patient(200)
