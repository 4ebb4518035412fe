"""Phase ``greedy``: the tokens of generate(), and the logits of every step through the KV cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from samebits_probe.cell.phase import Phase
from samebits_probe.cell.session import Session
from samebits_probe.model import decode
from samebits_probe.model.choice import TOKENS, DoesNotApply, NotFed
from samebits_probe.model.inputs import Inputs
from samebits_probe.model.leftover import Leftover
from samebits_probe.model.refusal import refusals
from samebits_probe.model.tensor import tensor_hash
from samebits_probe.process import progress
from samebits_probe.process.failure import phase

START = 2
"""Steps that a short run decodes: the second is the first that reads the cache."""


def observe(session: Session) -> None:
    """Decode every prompt that applies, greedily; in run a with the first token watched.

    The first prompt is decoded plainly, and two tokens of it once more and watched. If these have
    the same logits, the other prompts are decoded once. Else the phase ``first token`` watches.
    """
    steps, model = int(session.job["model"]["greedy"]), session.loaded.model
    if steps <= 0:
        session.skip("greedy", "no tokens were requested")
        return
    if not _generates(session):
        reason = f"{type(model).__name__} does not generate"
        session.skip("greedy", reason, "no generation")
        return
    facts = session.signals["greedy"] = {}
    tokens = _FirstTokens(session, steps)
    for name in session.job["model"]["prompts"]:
        phase_name = f"greedy {name}"
        session.begin(phase_name)
        with session.recorded_failures(phase_name), phase(phase_name):
            try:
                inputs = session.inputs(name)
                if lacking := inputs.not_generated_from:
                    reason = (
                        f"generate() requires {', '.join(lacking)}, which samebits does not give it"
                    )
                    session.skip(phase_name, reason, why="inputs")
                    continue
                if reason := _not_decoded(inputs):
                    session.skip(phase_name, reason)
                    continue
                with _unused_skipped(session, phase_name, inputs):
                    facts.update(_generate(session, name, inputs, steps, tokens))
            except NotFed as reason:
                session.skip(f"greedy {name}", str(reason), why="inputs")
            except DoesNotApply:
                continue  # the forward recorded the reason


def _generates(session: Session) -> bool:
    """Return True for heads that predict the next token and classes with generate().

    The head is checked because can_generate of 4.48 is also true for masked language models.
    """
    can_generate = getattr(session.loaded.model, "can_generate", lambda: False)
    return session.loaded.head in {"causal-lm", "seq2seq-lm"} and bool(can_generate())


def _not_decoded(inputs: Inputs) -> str:
    """Return why generate() cannot start from a set of the user's; '' if it can."""
    if not inputs.is_set or TOKENS in inputs.kwargs:
        return ""
    return f"the inputs have no {TOKENS}, which generate() continues"


@contextmanager
def _unused_skipped(session: Session, what: str, inputs: Inputs) -> Iterator[None]:
    """Skip the decode of a set of the user's with arguments that forward takes, not generate()."""
    try:
        yield
    except ValueError as error:
        if not inputs.is_set or "`model_kwargs`" not in str(error):
            raise
        session.skip(what, f"generate() refuses the inputs: {str(error).partition(' (')[0]}")


class _FirstTokens:
    """What runs for the first token after the prefill, watched in the decode itself."""

    def __init__(self, session: Session, steps: int) -> None:
        self._session = session
        self._may_watch = (
            session.is_run_a
            and not session.is_apart
            and session.effect == "none"
            and steps >= decode.TOKENS
        )
        self._functions: list[str] | None = None
        """Functions of the token of the prompt that was checked; None before the check."""

    def watched(self, name: str, generate: Callable[[], Any]) -> Any:
        """Decode a prompt watched, and return generate()'s output; None if it is not to be."""
        if not self._may_watch or self._functions is None:
            return None
        model = self._session.loaded.model
        before = Leftover(model)
        try:
            with decode.watched_token(model, any_cache=False) as token:
                output = generate()
        except Exception:  # noqa: BLE001  the plain decode raises it again if it is the model's
            self._may_watch = False
            before.restore()
            return None
        facts = token.facts()
        # other functions may have run once only, or for what another prompt left
        if not token.is_refused and facts["functions"] in ([], self._functions):
            self._session.first_tokens[name] = facts
        return output

    def check(self, name: str, inputs: Inputs, plain: Any) -> None:
        """Decode two tokens of a prompt watched, and compare their logits with plain ones."""
        if not self._may_watch or self._functions is not None:
            return
        model = self._session.loaded.model
        before = Leftover(model)
        try:
            with progress.forwards(decode.TOKENS, inputs.kwargs, times=10):
                token, watched = decode.two_tokens(model, inputs, any_cache=False)
        except Exception:  # noqa: BLE001  the phase "first token" says why
            self._may_watch = False
            return
        finally:
            before.restore()  # the next prompt is decoded as if this one had been decoded once
        pairs = list(zip(plain.logits, watched.logits, strict=False))
        self._may_watch = not token.is_refused and all(
            tensor_hash(first) == tensor_hash(second) for first, second in pairs
        )
        if self._may_watch and len(pairs) >= decode.TOKENS:
            self._session.first_tokens[name] = facts = token.facts()
            self._functions = facts["functions"]


def _generate(
    session: Session, name: str, inputs: Inputs, steps: int, tokens: _FirstTokens
) -> dict[str, Any]:
    """Return the facts of every row of a prompt's batch, by the name of the row."""
    model = session.loaded.model
    kwargs = {k: v for k, v in inputs.kwargs.items() if k != "decoder_input_ids"}
    n_expected, stopping = steps, dict[str, Any]()
    if session.is_short:
        # max_new_tokens stays, as a cache's size and the last step's scores may depend on it
        n_expected, stopping = min(START, steps), {"stopping_criteria": decode.stopping(START)}

    def generate() -> Any:
        with progress.forwards(n_expected, kwargs):
            return model.generate(
                **kwargs, max_new_tokens=steps, **decode.GREEDY_LOGITS, **stopping
            )

    if (output := tokens.watched(name, generate)) is None:
        with refusals(model.forward, inputs.kwargs, whole=False):
            output = generate()
        tokens.check(name, inputs, output)
    if reason := _no_rows_of_ids(output.sequences):
        session.skip(f"greedy {name}", reason)
        return {}
    count = len(output.scores)
    rows = output.sequences.shape[0]
    rows_by_name = {}
    for row in range(rows):
        ids = _until_end(model, output.sequences[row, -count:].tolist())
        ids = ids[:START] if session.is_short else ids
        rows_by_name[name if rows == 1 else f"{name}[{row}]"] = {
            "ids": ids,
            "top2": [_top2(output.scores[step][row]) for step in range(len(ids))],
            "text": _text(session, ids),
            "logits": session.keeper.ref(_row_logits(output, row, len(ids))),
            "start": session.keeper.ref(_row_logits(output, row, min(START, len(ids))), keep=False),
        }
    return rows_by_name


def _no_rows_of_ids(sequences: torch.Tensor) -> str:
    """Return why generated sequences are not token ids, [rows, length]; '' if they are."""
    if sequences.is_floating_point():  # MusicGen decodes its codes itself
        return "generate() returns a sound in place of token ids"
    if sequences.ndim != 2:  # Dia: [rows, length, channels]
        return f"generate() returns several streams of token ids, {[*sequences.shape]}"
    return ""


def _row_logits(output: Any, row: int, steps: int) -> torch.Tensor:
    """Return the logits of the first steps of a row, [steps, vocabulary]."""
    return torch.stack([output.logits[step][row] for step in range(steps)])


def _until_end(model: Any, ids: list[int]) -> list[int]:
    """Return the ids up to and including the first end token; a batch pads the rest."""
    end = model.generation_config.eos_token_id
    ends = {end} if isinstance(end, int) else set(end or ())
    last = next((i for i, token in enumerate(ids) if token in ends), len(ids))
    return ids[: last + 1]


def _text(session: Session, ids: list[int]) -> str | None:
    """Return the text of the tokens, which only informs; a model may have ids that its tokenizer lacks."""
    tokenizer = session.loaded.tokenizer
    if tokenizer is None:
        return None
    try:
        return str(tokenizer.decode(ids))
    except Exception:  # noqa: BLE001  it is no exception of generate()
        return None


def _top2(scores: torch.Tensor) -> list[list[float]]:
    values, ids = torch.topk(scores.float(), 2)
    return [[int(i), float(v)] for i, v in zip(ids, values, strict=True)]


PHASE = Phase("greedy", 30, observe)
