"""SB821 to SB824: rules for what generate() does by default, and with the same logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.compare import generation
from samebits.findings.case import seen_with
from samebits.findings.rule import Rule, Sighting
from samebits.records.finding import RuleText
from samebits.text.numbers import number, plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from samebits.compare.generation import OtherValue
    from samebits.findings.case import Case
    from samebits.records.generation import GenerationSignal

    Compare = Callable[[GenerationSignal, GenerationSignal], Iterator[OtherValue]]
    Check = Callable[[Case], Iterator[Sighting]]

_MAX_LINES = 6
"""Differences of one finding that the evidence shows, two lines each."""


def _differing(where: str, compare: Compare) -> Check:
    """Return a check for a comparison of both sides' answers; the first difference names it."""

    def check(case: Case) -> Iterator[Sighting]:
        usage = case.reference.signals.usage if case.reference is not None else None
        if case.reference is None or usage is None:
            return
        if usage.generation is None or case.usage.generation is None:
            return
        others = list(compare(usage.generation, case.usage.generation))
        if not others:
            return
        stacks = case.reference.cell.stack, case.capture.cell.stack
        lines = [
            line
            for other in others[:_MAX_LINES]
            for line in (
                f"{other.name}, {stacks[0]}: {other.reference}",
                f"{other.name}, {stacks[1]}: {other.candidate}",
            )
        ]
        if len(others) > _MAX_LINES:
            lines.append(f"and {len(others) - _MAX_LINES} more")
        lines += seen_with(case.usage.asked_of)
        yield Sighting(f"{where}: {others[0].name}", tuple(lines))

    return check


def _stale_beams(case: Case) -> Iterator[Sighting]:
    """Find beams that go on with the state of another beam."""
    beams, dtype = case.usage.beams, case.capture.cell.variant.dtype
    if beams is None or beams.keeps_state(dtype) is not False:
        return
    assert beams.by_cache is not None
    assert beams.of_others is not None
    assert beams.greedy is not None
    yield Sighting(
        "generate(num_beams=3)",
        (
            f"beams took each other's places {plural(beams.n_moved, 'time')} in six steps",
            f"their last logits are {number(beams.by_cache)} away from those without a cache",
            f"the logits of two beams differ by {number(beams.of_others)}",
            f"greedy decoding over the cache is {number(beams.greedy)} away",
            *seen_with(case.usage.asked_of),
        ),
    )


_GENERATE = "transformers/generation/utils.py"

RULES = (
    Rule(
        RuleText(
            code="SB821",
            name="generate() has other defaults",
            kind="silent",
            looks_for="a field of the generation config that generate() uses without arguments, "
            "with the release's defaults filled in, and that decides which tokens come",
            cause="generate() reads generation_config.json; without that file, or without a field "
            "in it, it takes the field from config.json or from the class of the config, and then "
            "the release's default. Releases differ in what they take. Affected: calls that do "
            "not name the argument, for checkpoints that do not name it in "
            "generation_config.json.",
            remedy="Name the field in generation_config.json, or in the call of generate().",
            example="model.generation_config.forced_eos_token_id = 2\n"
            "model.generation_config.save_pretrained(folder)",
            releases="Measured: forced_eos_token_id of BART's config is used up to 4.57 and in "
            "5.23, not in 5.2.",
            references=(
                "transformers/generation/configuration_utils.py, from_model_config",
                "transformers/models/bart/configuration_bart.py",
            ),
        ),
        _differing("generation_config", generation.defaults),
    ),
    Rule(
        RuleText(
            code="SB822",
            name="generate() chooses other tokens from the same logits",
            kind="silent",
            looks_for="a way of generating with the same prompt, the same arguments and logits "
            "from the same table that returns other tokens, or has other scores before a token "
            "is drawn; sums that are equal but for rounding, and other draws, are left out",
            cause="The loop of generate() is another one: when beams stop, which end token a "
            "finished beam gets, the order of logits processors, forced tokens, or an own "
            "generate() or prepare_inputs_for_generation of the model. Affected: users of that "
            "way of generating; the model computes the same.",
            remedy="Name every argument that the way depends on. For beams: early_stopping, "
            "length_penalty and one eos_token_id.",
            example="model.generate(ids, num_beams=4, early_stopping=True, length_penalty=1.0)",
            releases="Measured for beams with several end tokens: 4.48 goes on where 4.57 stops, "
            "and writes the first of the end tokens for each of them.",
            references=("https://github.com/huggingface/transformers/pull/35802", _GENERATE),
        ),
        _differing("generate()", generation.choices),
    ),
    Rule(
        RuleText(
            code="SB823",
            name="a logits processor gives other scores",
            kind="silent",
            scope="release",
            looks_for="a class of transformers.generation.logits_process that both releases have "
            "and that gives other scores for the same ids, scores and arguments, or raises",
            cause="The class was changed. Affected: users of its argument of generate(), and code "
            "that calls the class.",
            remedy="Keep the class of the release that you need in your own code, and pass it as "
            "logits_processor.",
            example="model.generate(ids, logits_processor=LogitsProcessorList([MyProcessor()]))",
            releases="none seen from 4.48 to 5.23",
            references=("transformers/generation/logits_process.py",),
        ),
        _differing("logits processor", generation.processors),
    ),
    Rule(
        RuleText(
            code="SB824",
            name="a way of generating raises an exception",
            kind="crash",
            looks_for="sampling, beams, penalties, end tokens, prompt lookup or an assistant, "
            "which return tokens in the reference and raise here, where greedy generation works",
            cause="The usual causes: a cache that cannot be reordered or cropped in this release, "
            "or an own prepare_inputs_for_generation that does not expect what the way feeds. "
            "Affected: users of that way.",
            remedy="Generate greedily, or repair what the exception names.",
            releases="depends on the model",
            references=(_GENERATE,),
        ),
        _differing("generate()", generation.refusals),
    ),
    Rule(
        RuleText(
            code="SB825",
            name="a beam goes on with the state of another beam",
            kind="silent",
            looks_for="beam search over a cache, with beams that take each other's places, whose "
            "logits are not those of the beam's own tokens, where greedy decoding's are",
            cause="generate() reorders only the cache that it knows as past_key_values. A model that "
            "keeps its state under another name, or in its own attributes, goes on with the state of "
            "the beam that stood in the place before. The text is another one, without an exception.",
            remedy="Generate without beams, or pass use_cache=False.",
            example="model.generate(ids, num_beams=4, use_cache=False)",
            releases="Measured for mamba: up to 5.2; 5.23 reorders every cache.",
            references=("https://github.com/huggingface/transformers/issues/46612", _GENERATE),
        ),
        _stale_beams,
    ),
)
