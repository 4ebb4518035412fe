"""Made models: small ones of the same class that are asked in place of a large model."""

from __future__ import annotations

from samebits.records.record import Record


class MadeModel(Record):
    """A small model that the release made from the large one's config, with seeded weights.

    It has the same class, kinds of layers, heads and windows. So it answers for the code of the
    release, and says nothing about the weights of the large model.
    """

    n_layers: int
    """Layers of its longest stack of layers."""
    hidden_size: int
    n_parameters: int

    @property
    def in_words(self) -> str:
        """What was asked, in the middle of a sentence."""
        return (
            f"a tiny model of {self.n_layers} layers, hidden size {self.hidden_size} and "
            f"{self.n_parameters:,} parameters, not the model itself"
        )
