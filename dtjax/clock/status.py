"""Why a run stopped."""

from __future__ import annotations

# Why a run stopped: the values of `Run.status`.
DONE, UNTIL, EXHAUSTED, STUCK = 0, 1, 2, 3
STATUS = {
    DONE: "made all the updates asked for",
    UNTIL: "reached `until`",
    EXHAUSTED: "a computation started whose duration is missing from the recorded table",
    STUCK: "no computation is under way that could ever arrive, and the policy starts none",
}
