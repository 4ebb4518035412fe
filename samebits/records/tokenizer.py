"""What a stack makes of a model's tokenizer: its class, what it adds, and what its calls return."""

from __future__ import annotations

from pydantic import Field

from samebits.records.record import Record


class Encoded(Record):
    """One text as ids."""

    text: str
    ids: tuple[int, ...]
    """As the tokenizer gives them when it is called with the text alone."""
    bare: tuple[int, ...]
    """Without special tokens."""


class Answer(Record):
    """What one call did."""

    type: str | None = None
    """Name of the type that it returned; None if it raised."""
    raised: str = ""
    """``TypeError: …``, first line."""

    @property
    def said(self) -> str:
        """The type, or the exception's."""
        return self.type or self.raised.partition(":")[0]


class TokenizerSignal(Record):
    """A model's tokenizer, loaded by AutoTokenizer; explains a difference and makes no verdict."""

    class_name: str
    padding_side: str
    declared_padding_side: str | None = None
    """What tokenizer_config.json says; None: nothing."""
    special: dict[str, int] = Field(default_factory=dict)
    """``bos``, ``eos``, ``pad``, ``unk`` -> id, those that there are."""
    texts: dict[str, Encoded] = Field(default_factory=dict)
    """``fixed``, and the prompts that are texts."""
    gives: tuple[str, ...] = ()
    """Keys of what calling it returns."""
    chat: Answer | None = None
    """apply_chat_template of one message, no keyword given; None without a template."""
    batch: Answer
    """decode of a list of lists."""
    methods: dict[str, bool] = Field(default_factory=dict)
    """Methods that some release of 4.48 to 5.23 lacks -> whether it is there."""
    saved_class: str | None = None
    """tokenizer_class in what save_pretrained writes; None if that failed or wrote none."""
    knows_backend: bool
    """True if the release has the class TokenizersBackend, which 5.x writes."""

    @property
    def adds(self) -> str:
        """What it adds to the fixed text, such as ``bos first``; ``nothing``."""
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
        told = ((before, "first"), (after, "last"))
        return ", ".join(f"{self._names(ids)} {where}" for ids, where in told if ids)

    def _names(self, ids: tuple[int, ...]) -> str:
        names = {token: name for name, token in self.special.items()}
        return " ".join(names.get(token, str(token)) for token in ids)
