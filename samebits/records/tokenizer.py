"""A model's tokenizer in one stack: its class, the tokens that it adds, and its return types."""

from __future__ import annotations

from pydantic import Field

from samebits.records.record import Record
from samebits.records.written import Written


class Encoded(Record):
    """One text and its token ids."""

    text: str
    ids: tuple[int, ...]
    """The ids from a call of the tokenizer with the text and no other argument."""
    bare: tuple[int, ...]
    """The ids without special tokens."""


class Answer(Record):
    """The outcome of one call."""

    type: str | None = None
    """Name of the type of the return value; None if it raised."""
    raised: str = ""
    """``TypeError: …``, first line."""

    @property
    def type_name(self) -> str:
        """Name of the type of the return value, or of the exception."""
        return self.type or self.raised.partition(":")[0]


class TokenizerSignal(Record):
    """A model's tokenizer, loaded by AutoTokenizer; it does not affect the verdict."""

    class_name: str
    padding_side: str
    declared_padding_side: str | None = None
    """The value in tokenizer_config.json; None: not set there."""
    special: dict[str, int] = Field(default_factory=dict)
    """``bos``, ``eos``, ``pad``, ``unk``, ``sep``, ``cls``, ``mask`` -> id, for those that exist."""
    texts: dict[str, Encoded] = Field(default_factory=dict)
    """Name -> encoded text: ``fixed``, and the prompts that are texts."""
    gives: tuple[str, ...] = ()
    """Keys of the object that a call returns."""
    chat: Answer | None = None
    """apply_chat_template of one message without keyword arguments; None without a template."""
    batch: Answer
    """decode of a list of lists."""
    methods: dict[str, bool] = Field(default_factory=dict)
    """Method that some release from 4.48 to 5.24 lacks -> whether it exists."""
    saved_class: str | None = None
    """tokenizer_class that save_pretrained writes; None if it failed or wrote none."""
    attributes: dict[str, str] = Field(default_factory=dict)
    """Attribute, or key of tokenizer_config.json -> its value as a short JSON text; ``absent``: neither an
    attribute nor an argument that it keeps."""
    unlike: dict[str, tuple[str, str]] = Field(default_factory=dict)
    """Key of the tokenizer's files -> the value that they state, and another one that the tokenizer has."""
    written: Written | None = None
    """What its save_pretrained writes; None in a report."""
    knows_backend: bool
    """True if the release has the class TokenizersBackend, which 5.x writes."""

    @property
    def adds(self) -> str:
        """The tokens that it adds to the fixed text, such as ``bos first``; or ``nothing``."""
        fixed = self.texts.get("fixed")
        if fixed is None:
            return "not observed"
        if fixed.ids == fixed.bare:
            return "nothing"
        size = len(fixed.bare)
        start = next((i for i in range(3) if fixed.ids[i : i + size] == fixed.bare), None)
        if start is None:
            return "other ids"
        before, after = fixed.ids[:start], fixed.ids[start + size :]
        added = ((before, "first"), (after, "last"))
        return ", ".join(f"{self._names(ids)} {position}" for ids, position in added if ids)

    def _names(self, ids: tuple[int, ...]) -> str:
        names = {token: name for name, token in self.special.items()}
        return " ".join(names.get(token, str(token)) for token in ids)
