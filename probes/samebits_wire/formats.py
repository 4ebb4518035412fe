"""Versions of the files that the probes write and the host reads, each with its history."""

from typing import Final

CAPTURE: Final = 29
"""What one run of a cell observed."""
# 1: first.
# 2: it bears a seal.
# 3: failures of phases after the load, progress of an unfinished run, and kinds of skips.
# 4: a skip of a tensor names it in fields; three more kinds of skips; short runs.
# 5: its hashes are BLAKE3, which it names.
# 6: every output of a forward, and the state that is left behind.
# 7: what the tokenizer makes of a corpus and of conversations.
# 8: what processors make of images, videos and sounds.
# 9: torch's settings, what exists only on a GPU, what processors make of outputs of a model, and whether
#    beams keep their state.
# 10: modules that no prompt ran, the step of a load that replaces a tensor, and which checks raised or
#    answered.
# 11: what forward does without an argument that only some releases take or use.
# 12: what questions beside the verdict observed lies under their names in ``answers``.
# 13: whether a second generate() gives what the first gave, and one with a static cache.
# 14: which functions of transformers it entered.
# 15: what saves wrote, and attributes of the tokenizer.
# 16: whether generate() gives the same with each kind of cache, what methods for features return, which
#     attention parts get, and which parts of functions ran.
# 17: what pipelines answer, what arguments of forward change, options and counts of processors, several answers to
#     a prompt with images, forwards from embeddings.
# 18: what arguments of generate() change, what other classes read of the checkpoint, several videos and conversations
#     with videos; no forks.
# 19: which layer's output each entry of hidden_states holds, and what a mask of ones changes beside an image, a
#     video or a sound.
# 20: what other heads of the checkpoint compute.
# 21: whether the forwards wrote a buffer that the load had not written.
# 22: what pipelines make of a batch of prompts and of each by itself; forwards of a
#     frozen model on images and sounds; the dtypes of models that are made of the config; rows with
#     images one by one, and rows of text after them.
# 23: which call of a processor counts the tokens that a method tells.
# 24: whether generate() with an image or a sound is its own forward.
# 25: whether padding changes what generate() computes behind its first step; a base model that only rounds otherwise.
# 26: which tensors of an adapter are not in the model.
# 27: padding without positions, and generate() of a padded row of text; whether a later turn of generate() over
#     the cache of the first is what it is anew; no loss among outputs of rows; what a prefix LM breaks by design.
# 28: Marian and other classes with names of their own generate; numbers that an argument of forward leads to; heads
#     that no Auto class loads, and losses of boxes, masks, pixels and series.
# 29: whether experts may be numbered otherwise; what a class reads of its base model that was saved alone, and heads
#     of parts; switches of processors that nothing sets, and conversations with several kinds of media.

GRAFT: Final = 5
"""What a stack stores for a graft, and what a graft restores."""
# 1: first.
# 2: it bears a seal.
# 3: a set whose run was lost.
# 4: its hashes are BLAKE3, which it names.
# 5: no forks.

INPUTS: Final = 11
"""Inputs of a model."""
# 1: first.
# 2: its hashes are BLAKE3, which it names.
# 3: prompts with images and sounds, arguments that only some releases take; the class is part of the digest.
# 4: what the class takes beside token ids.
# 5: the inputs for one forward are named single.
# 6: prompts with videos, and of what to find in an image.
# 7: boxes, features of objects, flattened patches, steps of a game; every codebook of a decoder.
# 8: sounds of Gemma 4.
# 9: rows with an image in front of the text, decoder ids beside a decoder's config, larger images to match.
# 10: images with boxes of words, of two resolutions, in parts of parts; sounds in windows.
# 11: channels of a sound where a codec is inside.

LADDER: Final = 8
"""A cell on the precision ladder."""
# 1: first.
# 2: it bears a seal.
# 3: what aligned tensors give.
# 4: several computations with aligned tensors; decodes that are those of the cell's own run.
# 5: its hashes are BLAKE3, which it names.
# 6: every output of a forward.
# 7: tables that a class keeps are computed anew in float64.
# 8: no forks.

STEP_GRAFT: Final = 1
"""Grafts in a training step."""
# 1: first.

STEP_TRACE: Final = 1
"""Operations of one training step."""
# 1: first.

TRACE: Final = 4
"""Operations of one forward or decode."""
# 1: first.
# 2: it bears a seal.
# 3: its hashes are BLAKE3, which it names.
# 4: traces of training steps.

TRAINER: Final = 6
"""What transformers' Trainer does."""
# 1: first.
# 2: whether its relation was not tried because it raises.
# 3: no classes of collator and sampler.
# 4: which functions of transformers it entered.
# 5: which settings of the model's config a run leaves changed.
# 6: the batches of training steps of version 12.

TRAINING: Final = 13
"""One training step."""
# 1: first.
# 2: takes_items and chance; batches of more heads, a loss with label smoothing, and four relations.
# 3: tensors whose requires_grad is False.
# 4: which relations were not tried because they raise.
# 5: no draws with dropout, no loss with label smoothing, and no adapter or autocast among the relations.
# 6: which functions of transformers it entered.
# 7: labels of boxes and masks, and draws of a loss that follow from their shapes.
# 8: a batch with images, and two relations of it.
# 9: gradient checkpointing where only layers learn.
# 10: accumulation of a batch of one row.
# 11: no logits of padding.
# 12: texts with what belongs to them; two images for batch norms; frames of a CTC loss have a mask.
# 13: a frozen base below projections that learn, with gradient checkpointing and without.

CHECKPOINT: Final = 4
"""A checkpoint made from a recipe."""
# 1: first.
# 2: it has a seal.
# 3: model.safetensors is aligned.
# 4: its hashes are BLAKE3, which it names.
