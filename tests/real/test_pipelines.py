"""Pipelines over real releases: what changed behind the model is named, clean twins are not accused."""

import json
from pathlib import Path

import pytest

from samebits.findings.case import Case
from samebits.questions.pipelines.records import PipelinesSignal
from samebits.questions.registry import findings
from tests.real.conftest import NEW, OLD
from tests.support.builders import Memory, sound

pytestmark = pytest.mark.long  # for changes of questions/pipelines

ROOT = Path(__file__).parents[2]
MAKE = """
import json, sys, torch, transformers
from pathlib import Path
sys.path[1:1] = [sys.argv[1]]
from samebits_probe.model import tokenizers
small = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
sounds = dict(
    vocab_size=32, conv_dim=[16, 16], conv_stride=[5, 2], conv_kernel=[10, 3],
    num_feat_extract_layers=2, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4,
    classifier_proj_size=8, **small,
)
extractor = {"feature_extractor_type": "Wav2Vec2FeatureExtractor", "do_normalize": True}
def save(name, made, tokenizer=True):
    folder = Path(sys.argv[2], name)
    made.save_pretrained(folder)
    if tokenizer:
        tokenizers.write(folder, "wordpiece", "BertTokenizerFast")
    else:
        (folder / "preprocessor_config.json").write_text(json.dumps(extractor))
torch.manual_seed(0)
for head in ("SequenceClassification", "TokenClassification", "QuestionAnswering", "MaskedLM"):
    config = transformers.BertConfig(vocab_size=144, num_labels=2, **small)
    save(head, getattr(transformers, f"BertFor{head}")(config))
for name, problem, labels in (
    ("sounds", None, 3), ("several", "multi_label_classification", 3), ("many", None, 7)
):
    config = transformers.Wav2Vec2Config(problem_type=problem, num_labels=labels, **sounds)
    save(name, transformers.Wav2Vec2ForSequenceClassification(config), False)
config = transformers.GPT2Config(
    vocab_size=144, n_embd=16, n_layer=1, n_head=2, n_positions=64, initializer_range=0.3
)
save("prompts", transformers.GPT2LMHeadModel(config))
"""
ASK = """
import json, logging, sys, warnings
from pathlib import Path
sys.path[1:1] = [sys.argv[1]]
import transformers
from samebits_probe.questions.pipelines import pipelines, tasks
from samebits_probe.model.load import Source
logging.disable(logging.WARNING)
warnings.simplefilter("ignore")
def plant(kind, change):
    original = kind.postprocess
    kind.postprocess = lambda self, *args, **kwargs: change(original(self, *args, **kwargs))
if "planted" in sys.argv:
    plant(transformers.FillMaskPipeline, lambda answer: answer[::-1])
    plant(transformers.TokenClassificationPipeline, lambda answer: answer[1:])
    plant(transformers.TextClassificationPipeline, lambda answer: answer | {"score": answer["score"] * 0.999}
        if isinstance(answer, dict) else answer)
for folder in sorted(Path(sys.argv[2]).iterdir()):
    config = transformers.AutoConfig.from_pretrained(folder)
    made = getattr(transformers, config.architectures[0])(config)
    facts = pipelines.facts(Source(str(folder), None, False, "float32", "default", "cpu"), tasks.served(made), 600.0)
    print(json.dumps([folder.name, {"tasks": facts}]))
"""
"""Asks for what the phase ``pipelines`` observes of some folders; ``planted``: of other pipelines."""
CLEAN = ("SequenceClassification", "TokenClassification", "MaskedLM", "sounds")
PLANTED = {
    "MaskedLM": ("[0].token", 4),
    "TokenClassification": ("length", 6),
    "SequenceClassification": ("[0].score", 2),
}
"""Model -> the field that is named, and the calls in which it differs."""


@pytest.fixture(scope="module")
def signals(run_script, tmp_path_factory):
    """Return stack -> name -> what its pipelines answer; ``planted``: the new one, changed."""
    root = tmp_path_factory.mktemp("pipelines")
    run_script(OLD, "-c", MAKE, ROOT / "probes", root)

    def asked(stack, *words):
        text = run_script(stack, "-c", ASK, ROOT / "probes", root, *words)
        lines = (json.loads(line) for line in text.splitlines() if line.startswith("["))
        return {name: PipelinesSignal.model_validate(facts) for name, facts in lines}

    return {OLD: asked(OLD), NEW: asked(NEW), "planted": asked(NEW, "planted")}


def found(signals, name, reference=OLD, candidate=NEW):
    case = Case(
        capture=sound(Memory(), candidate, pipelines=signals[candidate][name]),
        reference=sound(Memory(), reference, pipelines=signals[reference][name]),
    )
    return findings(case)


@pytest.mark.parametrize("name", CLEAN)
def test_a_pipeline_that_answers_alike_is_not_accused(signals, name):
    for task in signals[NEW][name].tasks.values():
        assert all(case.own is not None and case.own.fields for case in task.cases.values())
    assert found(signals, name) == ()
    assert found(signals, name, NEW, OLD) == ()


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_behind_the_model_is_named(signals, name):
    (finding,) = found(signals, name, candidate="planted")
    assert finding.code == "SB862"
    field, count = PLANTED[name]
    assert finding.where.endswith(field)
    assert any(field in line for line in finding.evidence)
    assert len(finding.evidence) == min(count, 3) * 3 + (count > 3)


def test_a_sound_with_several_labels_gets_other_scores(signals):
    """PIPE-02: 5.23 reads problem_type, earlier releases apply softmax to everything."""
    (finding,) = found(signals, "several")
    assert finding.code == "SB862"
    assert finding.where == "pipeline('audio-classification'): a sound: [0].score"


def test_all_labels_of_a_sound_are_returned_and_no_longer_five(signals):
    """PIPE-03."""
    (finding,) = found(signals, "many")
    assert finding.code == "SB862"
    places = ("a sound, length", "two sounds as a batch, [0] length")
    assert finding.evidence == tuple(
        line for place in places for line in (place, f"{OLD}: 5", f"{NEW}: 7")
    )


def test_a_batch_of_prompts_is_padded_behind_them_up_to_5_2(signals):
    """PIPE-05."""
    (finding,) = (each for each in found(signals, "prompts", NEW, OLD) if each.code == "SB865")
    assert finding.where == "pipeline('text-generation'): two prompts as a batch"
    assert "SB865" not in {each.code for each in found(signals, "prompts")}


def test_a_task_that_was_removed_on_purpose_is_named(signals):
    """PIPE-01."""
    (finding,) = found(signals, "QuestionAnswering")
    assert finding.code == "SB864"
    assert finding.where == "pipeline('question-answering')"
    assert "has been removed" in finding.evidence[-1]
    assert found(signals, "QuestionAnswering", NEW, OLD) == ()
