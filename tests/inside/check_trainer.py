"""trainer: what Trainer does is seen as it is, and each planted defect of it shows in its fact.

SAMEBITS_ACCELERATE names a folder with accelerate, which a stack does not have.
"""

import ast
import functools
import gc
import os
import sys
import tempfile
import weakref
from pathlib import Path
from unittest import mock

import tiny
import torch
import transformers
from planting import plant
from raising import raised
from samebits_probe.model import forks, load
from samebits_probe.model.tensor import Keeper
from samebits_probe.questions.edits.others import OFFLOADED, offloaded
from samebits_probe.questions.edits.subject import Done, Subject
from samebits_probe.questions.trainer import added, trainer
from samebits_probe.questions.trainer.best import best_at_end
from samebits_probe.questions.trainer.evaluation import evaluated
from samebits_probe.questions.trainer.placed import places
from samebits_probe.questions.training import batches, origin
from samebits_probe.questions.training.learner import Learner
from tiny import RELEASE, model

FOLDER = os.environ["SAMEBITS_ACCELERATE"]
NEWEST = RELEASE >= (5, 21)
OLD = RELEASE < (5, 0)
OLD_EVALUATION = RELEASE < (4, 57)
"""It passes no number of items."""
SMOOTHS_BY_ITEMS = RELEASE >= (5, 15)
LEAVES_THE_BEST = (4, 50) <= RELEASE < (5, 4)
"""It loads no checkpoint at the end with ``save_strategy="best"``."""
DROPS_THE_REST = RELEASE < (4, 52)
"""It counts the steps of whole accumulations alone."""
TWICE = transformers.__version__ == "5.2.0"
"""It tells accelerate the number of micro-batches, which then divides by it once more."""
READS_THE_TABLE = RELEASE < (4, 53)
"""Its Whisper reads the positions of the encoder without their module."""
torch.set_num_threads(1)


class Tried:
    """Trainer with one model, in the precision of the cell."""

    def __init__(self, made=None):
        added.use(FOLDER)
        self.made = made or model()
        self.where = origin.places(self.made, None)
        self.learner = Learner(self.made, torch.float32)
        rows = trainer.Rows(batches.batches(self.made, "causal-lm", {})[0])
        self.folder = tempfile.TemporaryDirectory()
        self.bench = trainer.Bench(rows, self.where, self.folder.name)

    def run(self, plan=trainer.ROW_BY_ROW):
        return self.bench.run(self.learner, plan).facts

    def relation(self, name=trainer.RELATION):
        """Return a relation, or why it was not tried."""
        answer = self.bench.relation(self.learner, "causal-lm")
        assert not answer["no_float64"], answer["no_float64"]
        ways = (*answer["relations"], *answer["inapplicable"])
        return next(way for way in ways if way["relation"] == name)

    def resumed(self):
        """Return whether a stop changes nothing, and what a resumed training begins without."""
        return self.relation(trainer.RESUMED), self.bench.lost


def trainer_module():
    added.use(FOLDER)
    import transformers.trainer

    return transformers.trainer


def test_a_release_that_gives_callbacks_no_optimizer_trains_all_the_same():
    """4.49 is one, and its Trainer works."""
    handler = trainer_module().CallbackHandler
    call_event = handler.call_event

    def without(self, *args, **kwargs):
        self.optimizer = None
        return call_event(self, *args, **kwargs)

    facts = Tried().run()
    with mock.patch.object(handler, "call_event", without):
        assert Tried().run() == facts


def test_a_run_leaves_no_moments_and_no_weights_that_nothing_compares():
    """Kept ones made a run hold twenty times its model; of a large one no checkpoint is written."""
    built, alive = trainer._built, []

    def noted(run, where):
        optimizer = getattr(run.optimizer, "optimizer", run.optimizer)
        alive.extend(weakref.ref(state["exp_avg"]) for state in optimizer.state.values())
        return built(run, where)

    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(trainer, "_built", noted),
        mock.patch.object(trainer.small, "LIMIT", 0),
    ):
        gc.disable()
        try:
            tried = Tried()
            tried.bench.facts(tried.learner, Keeper(folder, 0, []))
            assert alive
            assert [moment() for moment in alive] == [None] * len(alive)
        finally:
            gc.enable()
        kept = {name: bool(run.results) for (_, name), run in tried.bench.done.items()}
        assert kept == {"row by row": False, "accumulated": True, "one batch": True}
        answer = tried.bench.relation(tried.learner, "causal-lm")
        assert [way["relation"] for way in answer["inapplicable"]] == [
            trainer.SMOOTHED,
            trainer.LEFT_OVER,
            trainer.RESUMED,
        ]
        own = [run for (of, _), run in tried.bench.done.items() if of is tried.learner]
        assert len(own) == 3
        assert not any(run.results for run in own)


def test_accelerate_comes_into_a_process_that_has_imported_transformers():
    import transformers.modeling_utils

    assert not forks.knows_accelerate()
    assert not hasattr(transformers.modeling_utils, "extract_model_from_parallel")
    raised(ImportError, added.use, tempfile.mkdtemp())
    assert added.use(FOLDER)[0].isdigit()
    assert forks.knows_accelerate()
    assert transformers.modeling_utils.extract_model_from_parallel.__module__.startswith(
        "accelerate"
    )
    assert sys.modules["accelerate"].__file__.startswith(FOLDER)
    assert sys.path[-1] == FOLDER


def test_the_statements_that_ask_for_accelerate_are_those_of_the_parsed_modules():
    folder = Path(transformers.__file__).parent
    n = 0
    for path in folder.rglob("*.py"):
        source = path.read_text("utf-8")
        if "is_accelerate_available" in source:
            blocks = [ast.unparse(block) for block in added.blocks(source)]
            assert blocks == [ast.unparse(block) for block in added._parsed(source)], path
            n += len(blocks)
    assert n > 10
    odd = "import os\nif os.name and (\n    is_accelerate_available()\n):\n    x = 1\nelse:\n    x = 2\ny = 3\n"
    assert [ast.unparse(block) for block in added.blocks(odd)] == [
        "if os.name and is_accelerate_available():\n    x = 1\nelse:\n    x = 2"
    ]


def test_the_arguments_are_those_of_a_user_who_names_a_folder():
    module = trainer_module()
    found = trainer.arguments()
    plain = module.TrainingArguments(output_dir=tempfile.mkdtemp(), report_to="none")
    assert found["optim"] == plain.optim.value
    assert found["learning_rate"] == str(plain.learning_rate)
    assert found["lr_scheduler_type"] == "linear"
    assert not [name for name, value in found.items() if "/tmp" in value]


def test_four_rows_are_trained_as_plain_torch_trains_them():
    tried = Tried()
    weights = {name: p.detach().clone() for name, p in tried.made.named_parameters()}
    facts = tried.run()
    assert all(bool((p == weights[n]).all()) for n, p in tried.made.named_parameters())
    assert len(facts["received"]) == len(facts["losses"]) == len(facts["norms"]) == trainer.ROWS
    rows = [forward["rows"][0] for forward in facts["received"]]
    assert sorted(rows) == list(range(trainer.ROWS))
    optimizer = torch.optim.AdamW(tried.made.parameters(), lr=5e-5, weight_decay=0.0)
    for step, row in enumerate(rows):
        optimizer.param_groups[0]["lr"] = 5e-5 * (1 - step / trainer.ROWS)
        assert facts["rates"][step] == [optimizer.param_groups[0]["lr"]] * len(facts["rates"][step])
        arguments = tried.bench.rows[row]
        batch = {name: value[None] for name, value in arguments.items()}
        items = int((arguments["labels"][1 if NEWEST else 0 :] != batches.IGNORED).sum())
        assert facts["received"][step]["items"] == items
        loss = tried.made(**batch, num_items_in_batch=items).loss
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(tried.made.parameters(), 1.0)
        optimizer.step()
        assert abs(float(loss) - facts["losses"][step]) < 1e-5
        assert abs(float(norm) - facts["norms"][step]) < 1e-4
    behind = tried.bench.run(tried.learner, trainer.ROW_BY_ROW).results
    for name, parameter in tried.made.named_parameters():
        assert (parameter - behind[name]).abs().max() < 1e-6, name


def test_a_clean_trainer_accumulates_as_one_batch():
    relation = Tried().relation()
    assert relation["broken"] == TWICE, relation
    assert relation["n"] > 20


def test_a_training_that_stops_and_goes_on_is_the_training_without_a_stop():
    tried = Tried()
    before = {name: weight.clone() for name, weight in tried.made.named_parameters()}
    way, lost = tried.resumed()
    assert way["holds"]
    assert way["n"] == len(before) + 2, "losses, rows and each weight"
    assert not lost
    assert all(torch.equal(w, before[n]) for n, w in tried.made.named_parameters())


def test_label_smoothing_multiplies_the_gradient_up_to_a_release():
    way = Tried().relation(trainer.SMOOTHED)
    assert way["broken"] != SMOOTHS_BY_ITEMS, way
    assert way["what"] == "loss" or not way["broken"]


def test_label_smoothing_that_ignores_the_number_of_items_is_seen():
    tried = Tried()
    smoother = trainer_module().LabelSmoother
    call = smoother.__call__

    def without(self, output, labels, shift_labels=False, **_items):
        return call(self, output, labels, shift_labels=shift_labels)

    with mock.patch.object(smoother, "__call__", without):
        assert tried.relation(trainer.SMOOTHED)["broken"]


def test_a_model_whose_losses_trainer_divides_itself_is_not_asked_for_label_smoothing():
    made = model()
    made.accepts_loss_kwargs = False
    way = Tried(made).relation(trainer.SMOOTHED)
    assert "divides" in way["reason"]
    assert not way["raised"]


def nothing(*_args, **_kwargs):
    """What a method does that is planted to do nothing."""


def test_weights_that_a_resumed_training_does_not_load_are_seen():
    tried = Tried()
    with mock.patch.object(trainer_module().Trainer, "_load_from_checkpoint", nothing):
        way, lost = tried.resumed()
    assert way["broken"]
    assert way["what"] == "loss"
    assert "lm_head.weight" in lost
    # a training does not move a row that no token of it looks up, but the tensor as a whole it does
    assert lost == {name for name, _ in tried.made.named_parameters()}


def test_moments_that_a_resumed_training_does_not_load_are_seen_in_what_follows():
    tried = Tried()
    with mock.patch.object(trainer_module().Trainer, "_load_optimizer_and_scheduler", nothing):
        way, lost = tried.resumed()
    assert way["broken"]
    assert not lost


def test_rows_that_a_resumed_training_sees_again_are_seen():
    tried = Tried()
    with mock.patch.object(
        trainer_module(),
        "skip_first_batches",
        lambda loader, *_args, **_kwargs: loader,
        create=True,
    ):
        way, _ = tried.resumed()
    assert way["broken"] or trainer_module().__dict__.get("skip_first_batches") is None


def test_a_training_that_cannot_be_resumed_says_so():
    tried = Tried()

    refuse = mock.Mock(side_effect=ValueError("no such file"))
    with mock.patch.object(trainer_module().Trainer, "_load_from_checkpoint", refuse):
        way, _ = tried.resumed()
    assert way["raised"]
    assert "no such file" in way["reason"]


def test_a_checkpoint_that_is_not_written_ends_no_run():
    tried = Tried()
    refuse = mock.Mock(side_effect=OSError("no such folder"))
    with mock.patch.object(trainer_module().Trainer, "_save_checkpoint", refuse):
        assert len(tried.run()["losses"]) == trainer.ROWS
        way, _ = tried.resumed()
    assert way["raised"]
    assert "no such folder" in way["reason"]


def test_only_the_promotion_takes_part_in_float64():
    tried = Tried()
    high = tried.learner.in_float64()
    facts = tried.bench.facts(high, Keeper(tempfile.mkdtemp(), 1 << 20, []))
    assert not facts["leaks"]
    own = tried.run()
    for a, b in zip(own["losses"], facts["runs"]["row by row"]["losses"], strict=True):
        assert 0 < abs(a - b) < 1e-4
    assert {ref["dtype"] for ref in facts["runs"]["row by row"]["weights"].values()} == {"float64"}


def test_a_planted_default_is_in_the_arguments_and_in_the_optimizer():
    module = trainer_module()
    clean = Tried().run()
    arguments = sys.modules["transformers.training_args"]
    arguments.TrainingArguments = functools.partial(
        module.TrainingArguments, weight_decay=0.125, adam_beta2=0.5
    )
    assert trainer.arguments()["weight_decay"] == "0.125"
    planted = Tried().run()
    assert planted["optimizer_arguments"]["weight_decay"] == "0.125"
    assert planted["optimizer_arguments"]["betas"] == "(0.9, 0.5)"
    assert clean["optimizer_arguments"]["weight_decay"] == "0.0"
    assert planted["decayed"] == clean["decayed"]
    assert not [name for name in clean["decayed"] if "norm" in name]
    assert planted["losses"][0] == clean["losses"][0]


def test_a_setting_that_trainer_leaves_changed_is_seen_and_put_back():
    """5.x sets use_cache to that of TrainingArguments, False by default."""
    made = model()
    made.config.use_cache = True
    facts = Tried(made).run()
    assert facts["config"] == ({} if OLD else {"use_cache": ["True", "False"]})
    assert made.config.use_cache is True


def test_a_planted_order_of_rows_is_seen():
    module = trainer_module()
    clean = Tried().run()
    module.Trainer._get_train_sampler = lambda self, *_: torch.utils.data.SequentialSampler(
        self.train_dataset
    )
    planted = Tried().run()
    order = [[f["rows"] for f in facts["received"]] for facts in (clean, planted)]
    assert order[1] == [[0], [1], [2], [3]]
    assert order[0] != order[1]


def test_a_planted_scheduler_is_seen():
    module = trainer_module()

    def constant(self, num_training_steps, optimizer=None):
        from transformers.optimization import get_constant_schedule

        self.lr_scheduler = get_constant_schedule(optimizer or self.optimizer)
        return self.lr_scheduler

    module.Trainer.create_scheduler = constant
    planted = Tried().run()
    assert {rate for rates in planted["rates"] for rate in rates} == {5e-5}
    assert "constant" in planted["scheduler"]


def test_a_planted_collator_that_shifts_labels_is_seen():
    clean = Tried().run()

    def shifted(plain, *args):
        batch = plain(*args)
        return batch | {"labels": batch["labels"].roll(1, 1)}

    with plant(trainer_module(), "default_data_collator", shifted):
        planted = Tried().run()
    assert all(forward["rows"] == [None] for forward in planted["received"])
    assert None not in [row for forward in clean["received"] for row in forward["rows"]]


def test_a_planted_count_of_items_is_seen_and_breaks_accumulation():
    clean = Tried()

    def of_the_first(plain, *args, **kwargs):
        samples, _ = plain(*args, **kwargs)
        return samples, torch.tensor(int((samples[0]["labels"] != -100).sum()))

    expected = [f["items"] for f in clean.run(trainer.ACCUMULATED)["received"]]
    assert clean.relation()["broken"] == TWICE
    plant(trainer_module().Trainer, "get_batch_samples", of_the_first).start()
    planted = Tried()
    assert [f["items"] for f in planted.run(trainer.ACCUMULATED)["received"]] != expected
    assert planted.relation()["broken"]


def test_a_model_that_takes_items_and_ignores_them_breaks_accumulation():
    made = model()

    class Ignoring(type(made)):
        def forward(self, input_ids=None, labels=None, num_items_in_batch=None, **kwargs):
            return super().forward(input_ids, labels=labels, **kwargs)

    made.__class__ = Ignoring
    assert Tried(made).relation()["broken"]


def without_items(scale=lambda loss, labels: loss):
    """Return a model that Trainer gives no number of items, with another loss."""
    made = model()

    class Means(type(made)):
        accepts_loss_kwargs = False

        def forward(self, input_ids=None, attention_mask=None, labels=None, **kwargs):
            output = super().forward(input_ids, attention_mask, labels=labels, **kwargs)
            output.loss = scale(output.loss, labels)
            return output

    made.__class__ = Means
    return made


def test_means_of_micro_batches_are_compared_on_rows_with_equally_many_labels():
    """GLM-4.6V of 5.2.0: accelerate divided by the number of micro-batches, as Trainer did; nothing named the side."""
    module = trainer_module()
    assert Tried(without_items()).relation()["broken"] == TWICE
    plain = module.Trainer.compute_loss

    def undivided(self, *args, **kwargs):
        return plain(self, *args, **kwargs) * self.args.gradient_accumulation_steps

    with mock.patch.object(module.Trainer, "compute_loss", undivided):
        assert Tried(without_items()).relation()["broken"]


def test_a_loss_that_is_no_mean_of_rows_is_not_compared():
    summed = Tried(without_items(lambda loss, labels: loss * (labels[:, 1:] != -100).sum()))
    assert summed.relation()["reason"] == "its loss of a batch is not the mean of those of its rows"


def test_clipping_that_is_left_out_shows_in_the_weights_alone():
    trainer_module()
    clean = Tried()
    keeper = Keeper(tempfile.mkdtemp(), 1 << 20, [])
    before = clean.bench.facts(clean.learner, keeper)["runs"]["row by row"]
    from accelerate import Accelerator

    def unclipped(self, parameters, max_norm, norm_type=2):
        return torch.nn.utils.clip_grad_norm_(parameters, 1e9)

    Accelerator.clip_grad_norm_ = unclipped
    planted = Tried()
    after = planted.bench.facts(planted.learner, keeper)["runs"]["row by row"]
    assert before["received"] == after["received"]
    assert before["losses"][0] == after["losses"][0]
    assert before["weights"] != after["weights"]


def test_a_batch_that_is_no_set_of_rows_says_so():
    made = model()
    batch = batches.batches(made, "causal-lm", {})[0]
    reason = raised(
        trainer.NoRows, trainer.Rows, batches.Batch("whole", batch.kwargs | {"use_cache": False})
    )
    assert "use_cache" in str(reason)


def test_a_planted_order_of_parameters_is_seen():
    """An optimizer's state has no names, so what it holds is by place."""
    clean = Tried().run()["order"]
    names = [held["name"] for group in clean for held in group]
    assert sorted(names) == sorted(dict(model().named_parameters()))

    def without_the_last(plain, *args):
        return plain(*args)[:-1]

    with plant(trainer_module().Trainer, "get_decay_parameter_names", without_the_last):
        planted = Tried().run()["order"]
    assert [len(group) for group in planted] == [len(clean[0]) - 1, len(clean[1]) + 1]
    assert {held["name"]: held["shape"] for group in planted for held in group} == {
        held["name"]: held["shape"] for group in clean for held in group
    }


def of_evaluation(made=None):
    tried = Tried(made)
    return evaluated(tried.learner, tried.bench.rows)


def test_an_evaluation_is_what_plain_torch_computes():
    tried = Tried()
    tried.made.config.use_cache = True
    facts = evaluated(tried.learner, tried.bench.rows)
    assert tried.made.config.use_cache is True  # Trainer of 5.x sets it
    assert tried.made.training
    assert [forward["rows"] for forward in facts["received"]] == [[0, 1, 2], [3]]
    tried.made.eval()
    losses = []
    for forward in facts["received"]:
        rows = [tried.bench.rows[row] for row in forward["rows"]]
        batch = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
        first = 1 if NEWEST else 0
        items = (
            None if OLD_EVALUATION else int((batch["labels"][:, first:] != batches.IGNORED).sum())
        )
        assert forward["items"] == items
        loss = tried.made(**batch, num_items_in_batch=items).loss
        losses += [float(loss)] * len(rows)
    assert abs(facts["loss"] - sum(losses) / len(losses)) < 1e-5
    n_rows, width = tried.bench.rows.kwargs["labels"].shape
    assert facts["predictions"] == [str([n_rows, width, tried.made.config.vocab_size])]
    assert facts["labels"] == [str([n_rows, width])]


def test_a_step_with_a_rest_of_micro_batches_is_one_of_a_batch_where_a_release_counts_it():
    way = Tried().relation(trainer.LEFT_OVER)
    assert way["broken"] is (DROPS_THE_REST or TWICE)
    if DROPS_THE_REST:
        assert (way["what"], way["distance"]["max_abs"]) == ("steps", 1.0)


def test_a_planted_rest_that_is_divided_as_a_whole_step_is_seen():
    module = trainer_module()
    plain = module.Trainer.get_batch_samples

    def planted(self, *args, **kwargs):
        samples, items = plain(self, *args, **kwargs)
        accumulates = self.args.gradient_accumulation_steps > len(samples)
        return samples, items * 3 if accumulates else items

    with mock.patch.object(module.Trainer, "get_batch_samples", planted):
        tried = Tried()
        way = tried.relation(trainer.LEFT_OVER)
        assert way["broken"]
        assert DROPS_THE_REST or TWICE or way["what"] == "loss"
        assert tried.relation()["broken"] is TWICE


def ends():
    tried = Tried()
    before = {name: value.clone() for name, value in tried.made.state_dict().items()}
    facts = best_at_end(tried.learner, tried.bench.rows, tried.where)
    assert all(torch.equal(value, before[name]) for name, value in tried.made.state_dict().items())
    return facts


def test_a_training_ends_as_its_best_checkpoint_but_where_a_release_does_not_load_it():
    clean = {"best": 2, "steps": [2]}
    last = {"best": 2, "steps": [4]}
    assert ends() == {"steps": clean, "best": last if LEAVES_THE_BEST else clean}


def test_a_planted_training_that_loads_no_checkpoint_ends_as_its_last_step():
    with mock.patch.object(trainer_module().Trainer, "_load_best_model"):
        assert [end["steps"] for end in ends().values()] == [[4], [4]]


def test_a_save_that_raises_is_a_fact_of_each_strategy():
    def refusing(self, *args, **kwargs):
        raise OSError("no room")

    with mock.patch.object(trainer_module().Trainer, "_save_checkpoint", refusing):
        facts = ends()
    assert all("no room" in end["refused"] for end in facts.values())


ON_DISK = 'from_pretrained(device_map={"": "disk"})'


def placed(kind=transformers.LlamaForCausalLM, **changed):
    """Return what comes of each load but that onto the disk, and of the disk."""
    added.use(FOLDER)
    folder = tempfile.mkdtemp()
    tiny.made(kind, seed=1, std=0.2, **(tiny.SIZES | changed)).save_pretrained(folder)
    source = load.Source(folder, None, False, "float32", "default", "cpu")
    model, _ = load.from_pretrained(kind, source, 0)
    answer = places(model, source, {"input_ids": torch.arange(5, 14)[None]})
    return answer, answer.pop(ON_DISK, None)


class Reaching(transformers.LlamaForCausalLM):
    """Reads the tensor of a module without the module."""

    def forward(self, *args, **kwargs):
        torch.ones(1, 16) @ self.model.norm.weight
        return super().forward(*args, **kwargs)


def test_a_forward_that_reads_the_tensor_of_another_module_is_seen_once_it_is_offloaded():
    answer, _ = placed(Reaching)
    assert "meta" in answer[OFFLOADED]["raised"]["forward"]


def test_the_positions_of_whisper_are_read_by_their_module_where_the_release_does_so():
    added.use(FOLDER)
    fed = {"input_features": torch.ones(1, 8, 16), "decoder_input_ids": torch.tensor([[3, 4]])}
    subject, done = Subject(tiny.whisper(max_source_positions=8), None, fed, Path()), Done()
    offloaded(subject, subject.forward(), done)
    assert ("meta" in done.raised["forward"]) is READS_THE_TABLE
    assert not done.broken


def test_a_model_is_the_same_wherever_it_is_placed():
    for ties in (False, True):
        answer, on_disk = placed(tie_word_embeddings=ties)
        assert answer.pop(OFFLOADED) == {"raised": {"": "", "forward": ""}}
        assert len(answer) == 3
        for facts in (*answer.values(), *([on_disk] if RELEASE >= (5, 15) else [])):
            assert "broken" not in facts, facts
            assert facts["raised"] == {"": "", "forward": "", "save_pretrained": ""}
    if OLD:
        assert "meta tensor" in on_disk["raised"]["save_pretrained"]


class Placed(transformers.LlamaForCausalLM):
    """A model that knows whether it was placed by itself."""

    is_placed = False

    @classmethod
    def from_pretrained(cls, *args, **kwargs):
        model = super().from_pretrained(*args, **kwargs)
        model.is_placed = kwargs.get("device_map") == "auto"
        return model


class OtherWhereItIsPlaced(Placed):
    """A model that a load with a place leaves with another norm."""

    @classmethod
    def from_pretrained(cls, *args, **kwargs):
        model = super().from_pretrained(*args, **kwargs)
        if model.is_placed:
            model.model.norm.weight.data.mul_(2)
        return model


class Drawing(transformers.LlamaForCausalLM):
    """A model that gives other numbers each time."""

    def forward(self, *args, **kwargs):
        output = super().forward(*args, **kwargs)
        output.logits = output.logits + torch.rand(1)
        return output


class WithoutValues(Placed):
    """A model that returns no values where it is placed."""

    def forward(self, *args, **kwargs):
        output = super().forward(*args, **kwargs)
        if self.is_placed:
            output.logits = output.logits.to("meta")
        return output


def test_planted_places_are_seen_and_a_model_that_draws_is_not_asked():
    answer, _ = placed(OtherWhereItIsPlaced)
    broken = {call: {*facts.get("broken", {})} for call, facts in answer.items()}
    assert broken.pop("from_pretrained(device_map='auto')") == {
        "tensors",
        "outputs",
        "saved tensors",
    }
    assert [*broken.values()] == [set()] * 3
    answer, _ = placed(WithoutValues)
    assert "no values" in answer["from_pretrained(device_map='auto')"]["broken"]["outputs"]
    assert placed(Drawing) == ({}, None)


def test_an_evaluation_in_float64_is_of_float64():
    tried = Tried()
    own = evaluated(tried.learner, tried.bench.rows)
    twin = tried.learner.in_float64()
    high = evaluated(twin, tried.bench.rows)
    assert not twin.leaks
    assert 0 < abs(own["loss"] - high["loss"]) < 1e-4


def test_a_planted_evaluation_that_leaves_out_a_row_is_seen():
    clean = of_evaluation()

    def without_a_row(plain, *args, **kwargs):
        loss, logits, labels = plain(*args, **kwargs)
        return loss * 2, logits[:, :-1], labels

    with plant(trainer_module().Trainer, "prediction_step", without_a_row):
        other = of_evaluation()
    assert other["loss"] != clean["loss"]
    assert other["predictions"] != clean["predictions"]
    assert other["labels"] == clean["labels"]


def test_an_evaluation_that_raises_is_a_fact_and_training_goes_on():
    module = trainer_module()

    def refusing(self, *args, **kwargs):
        raise TypeError

    module.Trainer.prediction_step = refusing
    tried = Tried()
    assert "TypeError" in evaluated(tried.learner, tried.bench.rows)["refused"]
    assert tried.made.training
    assert len(tried.run()["losses"]) == trainer.ROWS
