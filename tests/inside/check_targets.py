"""training: losses that match objects get boxes and masks; a planted loss of them is another one, its twin is not."""

import functools
import tempfile
import types

import torch
import transformers
from raising import raised
from samebits_probe.model import prompted, targets
from samebits_probe.model.tensor import Keeper
from samebits_probe.questions.training import batches, origin, relations, signals
from samebits_probe.questions.training.learner import Learner
from samebits_probe.questions.training.way import Setting

torch.set_num_threads(1)
PIXELS = {"short": {"pixel_values": torch.linspace(-1, 1, 3 * 16 * 24).reshape(1, 3, 16, 24)}}


class Output(dict):
    def __getattr__(self, name):
        if name not in self:
            raise AttributeError(name)
        return self[name]


class Detector(torch.nn.Module):
    """Finds four objects in an image, and matches them in order."""

    main_input_name = "pixel_values"

    def __init__(self, plant=""):
        super().__init__()
        torch.manual_seed(0)
        self.plant = plant
        self.config = types.SimpleNamespace(num_labels=3)
        self.boxes, self.classes = torch.nn.Linear(24, 4), torch.nn.Linear(24, 3)
        self.noise_scale = 0.1

    dtype = torch.float32

    def found(self, pixel_values):
        states = pixel_values.flatten(1, 2).unflatten(1, (4, -1)).mean(2)
        return self.boxes(states).sigmoid(), self.classes(states)

    def forward(self, pixel_values, labels: list[dict] | None = None):
        boxes, logits = self.found(pixel_values)
        if labels is None:
            return Output(logits=logits, pred_boxes=boxes)
        n = max(sum(len(of_row["boxes"]) for of_row in labels), 1)
        noise = self.drawn(boxes)
        pairs = [(b, c, of_row) for b, c, of_row in zip(boxes + noise, logits, labels, strict=True)]
        if self.plant == "first image":
            pairs = pairs[:1]
        if self.plant == "empty":
            n = min(len(of_row["boxes"]) for of_row in labels)
        near = [(b[: len(of["boxes"])] - of["boxes"]).abs().sum() for b, _, of in pairs]
        cost = torch.nn.functional.cross_entropy
        named = [
            cost(c[: len(of["class_labels"])], of["class_labels"], reduction="sum")
            for _, c, of in pairs
        ]
        parts = {"loss_bbox": sum(near) / n, "loss_ce": sum(named) / n}
        return Output(loss=sum(parts.values()), loss_dict=parts, logits=logits, pred_boxes=boxes)

    def drawn(self, boxes):
        if self.plant == "order":
            torch.randint_like(boxes[..., 0], 3)  # another draw comes first
        return (torch.rand_like(boxes) - 0.5) * self.noise_scale


class Segmenter(Detector):
    def forward(
        self,
        pixel_values,
        mask_labels=None,
        class_labels=None,
        pixel_mask=None,
    ):
        boxes, logits = self.found(pixel_values)
        if mask_labels is None:
            return Output(logits=logits)
        area = [m.mean((1, 2)).sum() * b.sum() for m, b in zip(mask_labels, boxes, strict=True)]
        named = [
            c[: len(of)].gather(1, of[:, None]).sum()
            for c, of in zip(logits, class_labels, strict=True)
        ]
        return Output(loss=sum(area) - sum(named), logits=logits)


def step(model):
    made = batches.batches(model, "base", PIXELS)
    learner = Learner(model, torch.float32)
    keeper = Keeper(tempfile.mkdtemp(), 1 << 20, [])
    return signals.signals(learner, made, origin.places(model, None), keeper)["batches"]


@functools.cache
def clean():
    return step(Detector())


def test_boxes_are_made_by_the_annotation_and_every_part_of_the_loss_is_kept():
    assert list(clean()) == ["objects", "no object"]
    for facts in clean().values():
        assert set(facts["others"]) == {"loss_bbox", "loss_ce"}, facts
        assert abs(sum(facts["others"].values()) - facts["loss"]) < 1e-5
    assert step(Detector()) == clean()


def test_a_loss_of_the_first_image_alone_is_another_one_and_a_division_by_none_shows():
    planted = step(Detector("first image"))
    assert planted["objects"]["loss"] != clean()["objects"]["loss"]
    planted = step(Detector("empty"))
    assert planted["no object"]["loss"] in ("NaN", "Infinity"), planted
    assert planted["no object"]["loss"] != clean()["no object"]["loss"]


def test_draws_in_another_order_are_no_difference_and_float64_draws_the_same():
    assert step(Detector("order")) == clean()
    learner = Learner(Detector(), torch.float32)
    batch = batches.batches(learner.model, "base", PIXELS)[0]
    near = [float(of.forward(batch.kwargs).loss) for of in (learner, learner.in_float64())]
    assert 0 < abs(near[0] - near[1]) < 1e-5, near
    before = torch.rand
    with targets.order_free():
        first, second = torch.rand(3), torch.rand(3)
        own = [torch.rand(3, generator=torch.Generator().manual_seed(n)) for n in (1, 2)]
    assert torch.equal(first, second)
    assert not torch.equal(*own)
    assert torch.rand is before


def test_masks_are_made_for_a_segmenter():
    facts = step(Segmenter())
    assert {name: bool(of.get("loss")) for name, of in facts.items()} == {
        "objects": True,
        "no object": True,
    }
    labels = targets.labels(Segmenter(), {"pixel_values": torch.zeros(2, 3, 16, 24)}, targets.FULL)
    assert [len(masks) for masks in labels["mask_labels"]] == [2, 1]
    assert all(mask.any() and not mask.all() for masks in labels["mask_labels"] for mask in masks)
    assert [of.tolist() for of in labels["class_labels"]] == [[1, 0], [1]]


def test_a_batch_of_objects_is_tried_in_the_ways_that_apply():
    model = Detector()
    answer = relations.observe(
        Learner(model, torch.float32),
        Setting(batches.batches(model, "base", PIXELS)[0], "base"),
        1e12,
    )
    assert not [r for r in answer["relations"] if r["broken"]], answer
    reasons = {skip["relation"]: skip["reason"] for skip in answer["inapplicable"]}
    assert "labels" in reasons["rows accumulated = one batch"], reasons


def test_a_classifier_of_pixels_gets_a_class_for_each():
    class Pixels(Detector):
        def forward(self, pixel_values, labels=None):
            logits = pixel_values * self.classes.weight.mean()
            if labels is None:
                return Output(logits=logits)
            entropy = torch.nn.functional.cross_entropy
            return Output(loss=entropy(logits, labels, ignore_index=255), logits=logits)

    (batch,) = batches.batches(Pixels(), "base", PIXELS)
    assert batch.labels.shape == (1, 16, 24)
    assert batch.labels.unique().tolist() == [0, 1, 2, 255]
    assert step(Pixels())["short"]["loss"] > 0


def test_phrases_come_first_where_a_model_has_them():
    model = Detector()
    prompts = PIXELS | {prompted.PHRASES: {"pixel_values": -PIXELS["short"]["pixel_values"]}}
    first = batches.batches(model, "base", prompts)[0]
    assert torch.equal(first.kwargs["pixel_values"][:1], prompts[prompted.PHRASES]["pixel_values"])


def test_a_model_of_series_computes_a_loss_of_what_comes_behind_them():
    config = transformers.PatchTSTConfig(
        num_input_channels=2,
        context_length=16,
        prediction_length=4,
        patch_length=4,
        patch_stride=4,
        d_model=8,
        num_attention_heads=2,
        num_hidden_layers=1,
        ffn_dim=8,
    )
    torch.manual_seed(0)
    model = transformers.PatchTSTForPrediction(config)
    past = torch.linspace(-1, 1, 32).reshape(1, 16, 2)
    (batch,) = batches.batches(model, "prediction", {"series": {"past_values": past}})
    assert batch.kwargs["future_values"].shape == (1, 4, 2)
    assert Learner(model, torch.float32).learn(batch.kwargs).loss.requires_grad
    base = transformers.PatchTSTModel(config)
    (none,) = batches.batches(base, "base", {"series": {"past_values": past}})
    raised(batches.NoLoss, Learner(base, torch.float32).forward, none.kwargs)


class Pairs(torch.nn.Module):
    """Compares each text with each image; ``planted`` loses the images' half of the loss."""

    config, dtype = transformers.PretrainedConfig(), torch.float32

    def __init__(self, planted=False):
        super().__init__()
        torch.manual_seed(0)
        self.planted, self.texts = planted, torch.nn.Embedding(9, 24)
        self.images = torch.nn.Linear(24, 24)

    def forward(self, input_ids, pixel_values, attention_mask=None, return_loss=False):
        logits = self.texts(input_ids).mean(1) @ self.images(pixel_values).mean((1, 2)).T
        if not return_loss:
            return Output(logits=logits)
        entropy = functools.partial(
            torch.nn.functional.cross_entropy, target=torch.arange(len(logits))
        )
        loss = entropy(logits) + (0 if self.planted else entropy(logits.T))
        return Output(loss=loss, logits=logits)


def pairs_of(model):
    prompts = {"short": {"input_ids": torch.tensor([[3, 4, 5]]), **PIXELS["short"]}}
    (batch,) = batches.batches(model, "base", prompts)
    learner = Learner(model, torch.float32)
    keeper = Keeper(tempfile.mkdtemp(), 1 << 20, [])
    facts = signals.signals(learner, [batch], origin.places(model, None), keeper)
    return batch, facts["batches"][batch.name], learner


def test_texts_and_their_images_have_a_loss_that_a_planted_one_does_not_have():
    batch, clean, learner = pairs_of(Pairs())
    assert batch.kwargs["return_loss"] is True
    assert batch.kwargs["input_ids"].tolist() == [[3, 4, 5], [5, 4, 3]]
    assert clean["loss"] > 0
    assert pairs_of(Pairs())[1] == clean
    planted = pairs_of(Pairs(planted=True))[1]
    assert planted["logits"] == clean["logits"]
    assert planted["loss"] != clean["loss"]
    answer = relations.observe(learner, Setting(batch, "base"), 1e12)
    assert not [each for each in answer["relations"] if each["broken"]], answer
    prompts = {"short": {"input_ids": torch.tensor([[3, 4, 5]])}}
    raised(batches.NoLoss, batches.batches, Pairs(), "base", prompts)


def test_a_batch_norm_gets_two_images():
    class Normed(Detector):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(3)

        def forward(self, pixel_values, labels=None):
            logits = self.norm(pixel_values.mean((2, 3)))
            loss = None if labels is None else torch.nn.functional.cross_entropy(logits, labels)
            return Output(logits=logits, **({} if loss is None else {"loss": loss}))

    model = Normed().eval()
    (batch,) = batches.batches(model, "image-classification", PIXELS)
    assert batch.n_rows == 2
    assert Learner(model, torch.float32).learn(batch.kwargs).loss.requires_grad


def test_frames_of_a_ctc_loss_have_a_mask_where_forward_takes_one():
    class Hears(torch.nn.Module):
        main_input_name, config = "input_features", transformers.PretrainedConfig()

        def forward(self, input_features, attention_mask=None, labels=None):
            return Output(logits=input_features)

    features = {"short": {"input_features": torch.zeros(1, 6, 4)}}
    (batch,) = batches.batches(Hears(), "ctc", features)
    assert batch.kwargs["attention_mask"].tolist() == [[1] * 6]
    own = {"short": features["short"] | {"attention_mask": torch.zeros(1, 6)}}
    assert batches.batches(Hears(), "ctc", own)[0].kwargs["attention_mask"].sum() == 0
