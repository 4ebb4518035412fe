"""Phase ``first token``: how one token is computed through the cache, prompt by prompt."""

from __future__ import annotations

from samebits_probe.cell.phase import Phase
from samebits_probe.cell.session import Session
from samebits_probe.model import decode

_FORWARDS = 10
"""Cost of one token that is decoded and watched, in plain forwards."""


def observe(session: Session) -> None:
    """Watch one token of each prompt that the greedy decode did not watch.

    Late, as generate() may leave a state.
    """
    if not session.is_run_a or not session.signals.get("greedy"):
        return
    decoded = session.signals["greedy"].keys()
    prompts = {n: i for n, i in session.prompts().items() if {n, f"{n}[0]"} & decoded}
    facts = session.first_tokens
    left = {name: inputs for name, inputs in prompts.items() if name not in facts}
    if left and session.leaves_out("first token", session.no_time(_FORWARDS * len(left))):
        return
    session.begin("first token")
    with session.instrument("first token"):
        facts = facts | decode.first_token(session.loaded.model, left)
        session.signals["first_token"] = {name: facts[name] for name in prompts}


PHASE = Phase("first token", 70, observe)
