"""The job that chooses the inputs of a model's cells, from the model's signature and config.

Expects a job: model (source, revision, trust_remote_code, prompts), places (positions in matrix.yaml
of what the user gives), stack, store (root) and result (a path). Loads the config and the class, but no weights. Writes the file that
samebits/records/inputs.py reads, completely or not at all. The bytes of the tensors are in the
store by hash, where every job of the model finds them (model.feed).

The token ids of a text depend on the release, so each stack tokenizes a text prompt itself: the
record holds the texts and all other inputs.
"""

from __future__ import annotations

import inspect
import sys
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
import transformers

from samebits_probe.model import (
    alone,
    choice,
    composite,
    input_set,
    inputs,
    load,
    media_way,
    multimodal,
    named,
    prompted,
    series,
    series_shapes,
    special,
    tried,
)
from samebits_probe.model.choice import DoesNotApply
from samebits_probe.model.declared import is_set
from samebits_probe.model.tensor import Keeper
from samebits_probe.process import files, progress, threads
from samebits_probe.process.failure import PhaseFailed, Unknown, in_one_line, phase
from samebits_probe.process.hashing import head
from samebits_wire import formats
from samebits_wire.jobs import InputSet, InputsJob, Prompt, Variant

Fact = dict[str, Any]

_LIMIT = 1 << 30
"""Bytes up to which an input is kept; no model takes more for one prompt."""
_MAX_SINGLE_LENGTH = 64
"""Tokens of a prompt that stands for all: past the window of a tiny model, and fast on any model."""
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_SINGLE = "crossing"
"""Name of this prompt. Its ids follow from it, so with another one reports would show other distances."""


def run(job: InputsJob) -> None:
    """Choose a model's inputs and write the record."""
    threads.use(int(job["threads"]))
    progress.begin("inputs")
    try:
        with phase("inputs"):
            facts = Chooser(job).facts()
    except Unknown as reason:
        facts = {"absent": str(reason)}
    except PhaseFailed as failed:
        facts = {"failure": failed.failure}
    record = head("inputs", formats.INPUTS) | {"model": job["name"], "stack": job["stack"]}
    files.write_sealed(Path(job["result"]), record | facts)


class Rows(NamedTuple):
    """The rows of token ids of a prompt; the ids of a text come from each stack's tokenizer."""

    rows: list[Fact]
    width: int | None
    """Length of the longest row; None if a tokenizer decides it."""


def generates(model_class: Any) -> bool:
    """Return True if a class has generate() once it is loaded.

    An Auto class gives GenerationMixin to a class of the user's that prepares its inputs, and the class itself does
    not know. ``can_generate`` may be a method of instances, as in LLaDA and OLMo.
    """
    can_generate = getattr(model_class, "can_generate", lambda: False)
    if inspect.signature(can_generate).parameters or can_generate():
        return True
    is_given = any(base.__name__ == "GenerationMixin" for base in model_class.__mro__)
    return not is_given and hasattr(model_class, "prepare_inputs_for_generation")


def needed_by_generate(model_class: Any) -> list[str]:
    """Return the arguments that a class's generate() requires, as Pop2Piano's does a sound."""
    method = getattr(model_class, "generate", None)
    parameters = inspect.signature(method).parameters if callable(method) else {}
    required = (p for p in parameters.values() if p.default is p.empty)
    return [p.name for p in required if p.kind in _NAMED and p.name != "self"]


class Chooser:
    """One model's config and class, and the inputs that follow from them."""

    def __init__(self, job: InputsJob) -> None:
        self.job = job
        model = job["model"]
        variant: Variant = {"dtype": "float32", "attention": "default", "device": "cpu"}
        self.source = load.Source.of(model, variant)
        self.config = load.load_config(self.source)
        self.model_class = load.class_of(self.config, self.source)
        self.tokens = inputs.token_config(self.config)
        self.signature = choice.signature_of(self.model_class.forward)
        self.traits = self._traits()
        self.keeper = Keeper(job["store"]["root"], _LIMIT, [])

    def _traits(self) -> choice.Traits:
        return choice.traits_of(
            load.plain_config(self.config),
            main=self._main_input(),
            vocabulary=inputs.vocabulary(self.tokens),
            generates=generates(self.model_class),
            series=series_shapes.shapes_of(self.config, self.signature),
            named=named.names(self.model_class, self.signature, self.config),
        )

    def _main_input(self) -> str:
        """Return the name of the main input; that of its encoder for a class that names none that samebits makes."""
        own = getattr(self.model_class, "main_input_name", choice.TOKENS)
        encoder = transformers.MODEL_MAPPING.get(type(getattr(self.config, "encoder", None)), None)
        if own in choice.MAIN_INPUTS or encoder is None:
            return own if isinstance(own, str) else choice.TOKENS
        return str(getattr(encoder, "main_input_name", own))

    def facts(self) -> Fact:
        """Return the inputs of every prompt, and of one that stands for all."""
        length = max(1, min(inputs.past_window(self.tokens), _MAX_SINGLE_LENGTH))
        prompts = self.plain()
        if not any("constants" in fact for fact in prompts.values()):
            prompts |= {n: fact for n, fact in self.beside().items() if n not in prompts}
        sets = [fact for fact in prompts.values() if "constants" in fact]
        single = self._fact_of(_SINGLE, {"length": length})
        return {
            "model_class": self.model_class.__name__,
            "kinds": list(choice.kinds_of(self.signature)),
            "generate_needs": needed_by_generate(self.model_class),
            "prompts": prompts,
            # whole sets are fed where there are no plain prompts
            "single": sets[0] if sets and "reason" in single else single,
        }

    def plain(self) -> Fact:
        """Return the inputs of the prompts that the job names."""
        return {n: self._fact_of(n, p) for n, p in self.job["model"]["prompts"].items()}

    def _fact_of(self, name: str, prompt: Prompt | InputSet) -> Fact:
        try:
            if is_set(prompt):
                return self._given(name, cast("InputSet", prompt))
            return self._chosen(name, cast("Prompt", prompt))
        except DoesNotApply as reason:
            paste = {"paste": reason.paste} if reason.paste else {}
            return {"reason": str(reason), "why": reason.why, **paste}

    def _given(self, name: str, prompt: InputSet) -> Fact:
        """Return the inputs of a set of the user's; see :func:`input_set.make`."""
        places = self.job["places"].get(name, {})
        made = input_set.make(name, dict(prompt), self.config, self.signature, places)
        facts = {"tensors": self._refs(made.tensors), "constants": made.constants}
        return facts | {"real_rows": made.real_rows()}

    @cache  # noqa: B019  a process has one of these
    def beside(self) -> Fact:
        """Return prompts with an image, a video, a sound or a series, for a model that takes one."""
        if series_shapes.main(self.signature):
            return self._series()
        try:
            fed = choice.arguments(self.signature, self.traits)
        except DoesNotApply:
            fed = ()
        kinds = multimodal.kinds(self.config, self.signature, fed)
        made = {n: fact for kind in kinds for n, fact in self._of_kind(kind).items()}
        return made | self._special(fed) | self._prompted()

    def _of_kind(self, kind: str) -> Fact:
        way = self._way(kind)
        if isinstance(way, DoesNotApply):
            return {kind: {"reason": str(way), "why": way.why}}
        rows: dict[str, media_way.Rows] = {kind: media_way.ONE_IMAGE[:1]}
        if way.is_longer:  # where the padding of a row would be is not known
            rows[f"{kind}-rows"] = (media_way.ONE_IMAGE[0],) * 2
        else:
            rows[f"{kind}-padded"] = media_way.ONE_IMAGE
        if way.in_rows is not None:
            rows["two-images"] = media_way.TWO_IMAGES
        made = {name: self._of_way(name, way, parts) for name, parts in rows.items()}
        if way.no_two:
            reason = f"the model takes one image per row: {way.no_two}"
            made["two-images"] = {"reason": reason, "why": DoesNotApply.why}
        return made

    @cache  # noqa: B019  a process has one of these
    def _way(self, kind: str) -> media_way.Way | DoesNotApply:
        """Return how the model takes an image, a video or a sound, or why that is not known."""
        try:
            return multimodal.way(kind, self.model_class, self.config, self.signature)
        except DoesNotApply as reason:
            return reason

    @cached_property
    def _no_text(self) -> str:
        """Why the model takes no text without an image or a sound; '' if it does."""
        kinds = multimodal.kinds(self.config, self.signature, ())
        ways = [way for kind in kinds if isinstance(way := self._way(kind), media_way.Way)]
        return ways[0].no_text if ways and all(way.no_text for way in ways) else ""

    def _require_no_other(self) -> None:
        """Raise DoesNotApply if prompts with an image, a sound or a series have what forward requires."""
        fed = [name for name, fact in self.beside().items() if "tensors" in fact]
        if fed:
            raise DoesNotApply(f"forward requires what other prompts have: {', '.join(fed)}")

    def _prompted(self) -> Fact:
        """Return prompts of what to find in an image, for a model that is told so."""
        try:
            made = dict(prompted.prompts(self.model_class, self.config, self.signature))
        except Exception as error:  # noqa: BLE001  a class of the user's may have such names, too
            return {"prompts": {"reason": in_one_line(error), "why": choice.NotFed.why}}
        return {
            name: {"tensors": self._refs(prompt.tensors), "constants": prompt.constants}
            for name, prompt in made.items()
        }

    def _special(self, fed: tuple[str, ...]) -> Fact:
        """Return a prompt with special tokens, for a model of text that does not generate.

        A model that generates is padded on the left, in a prompt of its own, and takes most of these ids as
        any other.
        """
        if not choice.takes_special(self.model_class.__name__, self.signature, self.traits, fed):
            return {}
        ids = special.ids_of((self.tokens, self._tokenizer), inputs.vocabulary(self.tokens))
        if not ids:
            return {}
        made = special.make(ids, self.tokens)
        tensors = dict(made.kwargs)
        if choice.DECODER in fed:
            rows, width = tensors[choice.TOKENS].shape
            length = inputs.decoder_length(width)
            tensors[choice.DECODER] = inputs.decoder_tokens(special.NAME, self.config, length, rows)
        facts = {"tensors": self._refs(tensors), "constants": {}, "real_rows": made.real_rows}
        return {special.NAME: facts}

    @cached_property
    def _tokenizer(self) -> Any:
        """The tokenizer; None if there is none that this release can load."""
        try:
            return load.load_tokenizer(self.source) if self._has_tokenizer else None
        except Exception:  # noqa: BLE001  the load in each stack reports the error
            return None

    def _series(self) -> Fact:
        try:
            series.require(self.model_class, self.config, self.signature)
        except DoesNotApply as reason:
            return {"series": {"reason": str(reason), "why": reason.why}}
        made = {
            name: series.tensors(name, self.config, self.signature, rows)
            for name, rows in (("series", 1), ("series-batch", 2))
        }
        return {name: {"tensors": self._refs(t), "constants": {}} for name, t in made.items()}

    def _of_way(self, name: str, way: media_way.Way, rows: media_way.Rows) -> Fact:
        tensors = way.tensors(name, self.config, self.signature, rows)
        real_rows = input_set.Arguments(tensors, {}).real_rows() if len(rows) > 1 else None
        optional = [name for name in media_way.OPTIONAL if name in tensors]
        facts = {"tensors": self._refs(tensors), "constants": {}, "real_rows": real_rows}
        return facts | {"optional": optional}

    def _chosen(self, name: str, prompt: Prompt) -> Fact:
        if composite.has_no_forward(self.model_class):
            raise choice.NotFed(composite.why(self.model_class))
        arguments = self._arguments()
        if choice.TOKENS not in arguments:
            return self._of_pixels_or_sound(name, prompt, arguments)
        if len(arguments) == 1 and self._no_text:
            raise DoesNotApply(f"the model takes no text alone: {self._no_text}")
        if prompt.get("batch") and not self.signature.takes(choice.MASK):
            raise DoesNotApply(
                f"forward takes no {choice.MASK}, so that a padded batch has no meaning"
            )
        if choice.takes_choices(self.model_class.__name__):
            return {"tensors": self._refs(self._choices(name, prompt))}
        ends = choice.PIXELS in arguments
        rows = self._rows(name, prompt, ends=ends)
        tensors: dict[str, torch.Tensor] = {}
        fact: Fact = {}
        if rows.width is None:
            pad = inputs.pad_id(self.tokens)
            masked = choice.MASK in arguments
            fact |= {"rows": rows.rows, "pad": pad, "masked": masked, "text": prompt.get("text")}
        else:
            padded = inputs.padded(
                [row["ids"] for row in rows.rows],
                inputs.pad_id(self.tokens),
                masked=choice.MASK in arguments,
                # without an end, CLIP pools a text at its first position
                side="right" if self._borders or (ends and self._end is None) else "left",
            )
            tensors |= padded.kwargs
            fact["real_rows"] = padded.real_rows
        count = len(rows.rows)
        for argument in arguments:
            if argument == choice.DECODER:
                tensors[argument] = self._decoder(name, rows)
            elif argument in choice.VALUES:
                tensors[argument] = inputs.values(name, argument, self.config, count)
            elif argument in self.traits.named:
                tensors[argument] = named.tensor(argument, self._rows_of(name, tensors, count))
        return fact | {"tensors": self._refs(tensors)}

    def _rows_of(self, name: str, tensors: dict[str, torch.Tensor], count: int) -> list[named.Row]:
        """Return the rows of a prompt; without ids if a tokenizer makes them."""
        ids = tensors[choice.TOKENS].tolist() if choice.TOKENS in tensors else [()] * count
        prompts = [f"{name}[{n}]" if n else name for n in range(count)]
        return [
            named.Row(self.config, prompt, (*row,))
            for prompt, row in zip(prompts, ids, strict=True)
        ]

    def _arguments(self) -> tuple[str, ...]:
        """Return the arguments of a prompt. Raises DoesNotApply if none can be made."""
        try:
            arguments = choice.arguments(self.signature, self.traits)
        except DoesNotApply:
            if self._alone is None:
                self._require_no_other()
                raise
            return tuple(layout.main for layout in self._alone.layouts)
        is_plain = arguments == (choice.TOKENS,) and choice.MASK in self.signature.names
        return (*arguments, choice.MASK) if is_plain and self._needs_mask else arguments

    @cached_property
    def _needs_mask(self) -> bool:
        """True for code of the model's own that lists a mask as optional and raises without one, as reward heads do."""
        if named.is_of_transformers(self.model_class):
            return False
        return tried.needs_mask(self.model_class, self.config)

    @cached_property
    def _alone(self) -> alone.Alone | None:
        """What a model without token ids takes in place of the plain shapes; None if it takes those, or no others."""
        if not alone.takes(self.signature) or series_shapes.main(self.signature):
            return None
        if not named.is_of_transformers(self.model_class):
            return None
        try:
            plain = choice.arguments(self.signature, self.traits)
        except DoesNotApply:
            plain = ()
        if {*plain} & {choice.DECODER, *self.traits.named}:
            return None
        try:
            return alone.fitting(self.model_class, self.config, self.signature, plain)
        except DoesNotApply:
            return None

    def _of_pixels_or_sound(self, name: str, prompt: Prompt, arguments: tuple[str, ...]) -> Fact:
        main_input = arguments[0]
        if prompt.get("batch") or prompt.get("length") == "past-window":
            raise DoesNotApply(
                f"the model takes {main_input}, which has neither padding nor a window here"
            )
        if self._alone is not None:
            return {"tensors": self._refs(self._alone.tensors(name)), "constants": {}}
        return {"tensors": self._refs({a: self._alone_of(a, name) for a in arguments})}

    def _alone_of(self, argument: str, name: str) -> torch.Tensor:
        if argument == choice.DECODER:
            return inputs.decoder_tokens(name, self.config, inputs.DECODER_LENGTH)
        if argument in self.traits.named:
            return named.tensor(argument, [named.Row(self.config, name)])
        return inputs.values(name, argument, self.config)

    def _rows(self, name: str, prompt: Prompt, *, ends: bool) -> Rows:
        """Return the rows of a prompt; with ``ends`` seeded rows end with the end-of-text token."""
        batch = prompt.get("batch")
        rows = [
            self._row(f"{name}[{i}]" if batch else name, row, ends=ends)
            for i, row in enumerate(batch or [prompt])
        ]
        if any("text" in row for row in rows):
            return Rows(rows, None)
        return Rows(rows, max(len(row["ids"]) for row in rows))

    def _choices(self, name: str, prompt: Prompt) -> dict[str, torch.Tensor]:
        """Return seeded ids of several choices for each row, [rows, choices, length], and a mask."""
        rows = prompt.get("batch") or [prompt]
        past = inputs.past_window(self.tokens)
        lengths = [
            past if row.get("length") == "past-window" else row.get("length") for row in rows
        ]
        if not all(lengths):
            raise DoesNotApply(
                "several choices are made of seeded token ids: give the prompt a length"
            )
        return inputs.choices(name, [int(length or 0) for length in lengths], self.tokens)

    def _row(self, name: str, prompt: Prompt, *, ends: bool) -> Fact:
        length = prompt.get("length")
        past = inputs.past_window(self.tokens) if length == "past-window" else None
        if prompt.get("text") and self._has_tokenizer and named.BOXES not in self.traits.named:
            return {"text": prompt["text"], "at_least": past}
        if prompt.get("ids"):
            return {"ids": [int(i) for i in prompt["ids"]]}
        reserved = [getattr(self.config, name) for name in self.traits.placeholders]
        ids = inputs.seeded_ids(name, past or int(length or 9), self.tokens, reserved)
        if self._borders and length != 1:
            ids[0], ids[-1] = self._borders
        if ends and self._end is not None:
            ids[-1] = self._end  # a text part is pooled there
        return {"ids": ids}

    @property
    def _end(self) -> int | None:
        """The id that ends a text; None if the vocabulary has none, as in many small checkpoints of CLIP."""
        end = getattr(self.tokens, "eos_token_id", None)
        return end if isinstance(end, int) and 0 <= end < inputs.vocabulary(self.tokens) else None

    @cached_property
    def _borders(self) -> tuple[int, ...]:
        """The first and the last id of a text, where the model's code cuts texts at them; () for other models.

        Grounding DINO's masks and positions of a text without [CLS] are of no use, and change in 5.23.
        """
        ends = getattr(sys.modules.get(self.model_class.__module__), "SPECIAL_TOKENS", ())[:2]
        return (*ends,) if ends and max(ends) < inputs.vocabulary(self.tokens) else ()

    @cached_property
    def _has_tokenizer(self) -> bool:
        return load.has_tokenizer(self.source)

    def _decoder(self, name: str, rows: Rows) -> torch.Tensor:
        """Return decoder ids for every row; one more if a tokenizer decides the length."""
        length = inputs.DECODER_LENGTH + 1
        if rows.width is not None:
            length = inputs.decoder_length(rows.width)
        return inputs.decoder_tokens(name, self.config, length, len(rows.rows))

    def _refs(self, tensors: dict[str, torch.Tensor]) -> Fact:
        return {name: self.keeper.ref(tensor) for name, tensor in tensors.items()}
