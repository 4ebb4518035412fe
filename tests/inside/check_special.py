"""model.special: a prompt with the ids that have a meaning, padded on the right."""

from types import SimpleNamespace

from samebits_probe.model import special

CONFIG = SimpleNamespace(vocab_size=40, pad_token_id=1, bos_token_id=0, eos_token_id=[2, 3])
TOKENIZER = SimpleNamespace(cls_token_id=0, mask_token_id=39, sep_token_id=2, eos_token_id=None)


def test_each_id_counts_once_in_its_place():
    assert special.ids_of((CONFIG, TOKENIZER), 40) == [0, 2, 3, 39]
    assert special.ids_of((CONFIG, None), 40) == [0, 2, 3]


def test_ids_outside_of_the_vocabulary_are_left_out():
    odd = SimpleNamespace(mask_token_id=40, bos_token_id=-1, cls_token_id=True, sep_token_id="2")
    assert special.ids_of((odd,), 40) == []


def test_every_id_is_in_a_row_and_the_other_row_is_padded_on_the_right():
    for ids in ([39], [0, 2, 3, 39], list(range(2, 12))):
        made = special.make(ids, CONFIG)
        tokens, mask = made.kwargs["input_ids"], made.kwargs["attention_mask"]
        assert tokens.shape == mask.shape
        assert tokens.shape[0] == 2
        assert set(ids) <= set(tokens[0].tolist())
        assert int(tokens[0][0]) == ids[0]
        (begin, end) = made.real_rows[1]
        assert (begin, made.real_rows[0]) == (0, [0, tokens.shape[1]])
        assert end < tokens.shape[1]
        assert tokens[1][end:].eq(1).all()
        assert mask[1].tolist() == [1] * end + [0] * (tokens.shape[1] - end)
        assert mask[0].all()


def test_it_depends_on_nothing_else():
    first, second = (special.make([0, 39], CONFIG).kwargs["input_ids"] for _ in range(2))
    assert first.equal(second)


def test_both_rows_have_the_end_token_once():
    """T5ForSequenceClassification and BART's refuse rows with different numbers of it."""
    for ids, end in (([1], 1), ([0, 2], 2), ([0, 39, 2], 2)):
        tokens = special.make(ids, CONFIG).kwargs["input_ids"]
        real = [
            row[:n].tolist() for row, (_, n) in zip(tokens, special.make(ids, CONFIG).real_rows)
        ]
        assert [row.count(end) for row in real] == [1, 1]
