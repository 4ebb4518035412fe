"""Which changed definitions ran, and which a model can reach that did not run."""

import pytest

from samebits.questions.changes import compare
from samebits.questions.changes.compare import Side, changed_frames
from samebits.questions.changes.compare import step as step_between
from samebits.questions.changes.reach import Calls, Model
from samebits.questions.changes.release import Release
from samebits.records.capture import Frame

MODELING = """from ...cache import Cache
from ...rope import ROPES
from ...utils import helper
from ...quantizers import base
from ... import tokenization_base, cache_utils

class TinyModel:
    def forward(self, x, mask=None):
        if mask is not None:
            x = self._masked(x, mask)
        for key in ROPES:
            x = ROPES[key](x)
        return helper(x)

    def _masked(self, x, mask):
        return x + mask

    def resize(self, n):
        return n

    def save_parts(self, n):
        return n, quantize, Tokenizer, OtherModel, DynamicCache

    def _unused(self):
        return 0

    def _init_weights(self, module):
        return isinstance(module, OtherHead)

    def image_features(self, x):
        return x, OtherHead

class OtherHead:
    def __init__(self):
        self.head = TinyModel()

    def forward(self, x):
        return x
"""
UTILS = """from .logging import get
from ..models.other import modeling_other

def helper(x):
    return x * 2

def lonely(x):
    return x
"""
CACHE = """class Cache:
    def update(self):
        return 1
"""
ROPE = """def linear(x):
    return x // 11

def yarn(x):
    return x // 13

ROPES = {"linear": linear, "yarn": yarn}
"""
CACHES = """class DynamicCache:
    def update(self):
        return 17

    def reset(self):
        raise NotImplementedError
"""
OWN = "models/tiny/modeling_tiny.py"
FILES = {
    OWN: MODELING,
    "utils/__init__.py": UTILS,
    "cache.py": CACHE,
    "utils/logging.py": "def get():\n    return 1\n",
    "rope.py": ROPE,
    "quantizers/base.py": "def quantize(x):\n    return x // 3\n",
    "models/other/modeling_other.py": "class OtherModel:\n    def forward(self, x):\n        return x // 5\n",
    "tokenization_base.py": "class Tokenizer:\n    def encode(self, x):\n        return x // 7\n",
    "cache_utils.py": CACHES,
}


@pytest.fixture
def release(tmp_path):
    """Return what writes a release with some texts replaced."""

    def write(name, *changes):
        for file, text in FILES.items():
            path = tmp_path / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            changed = text
            for before, after in changes:
                changed = changed.replace(before, after)
            path.write_text(changed)
        return Release(tmp_path / name)

    return write


def lines(*names):
    """Return the first lines of functions of the model's file and of utils."""
    texts = {OWN: MODELING, "utils/__init__.py": UTILS}
    return {
        file: [n for n, line in enumerate(text.splitlines(), 1) if line.strip().startswith(names)]
        for file, text in texts.items()
    }


RAN = lines("def forward(self, x, mask", "def helper")


def of(release, *changes, entered=RAN, aside=None, model=Model()):  # noqa: B008  it is frozen
    calls = Calls(entered, aside or {})
    reference = Side("4.57", release("a"), calls, model)
    return step_between(reference, Side("5.2", release("b", *changes), calls, model), model)


def unrun(step):
    return [(entry.name, entry.near) for entry in step.first]


def test_equal_releases_have_no_change(release):
    assert of(release).changed == 0


def test_a_changed_function_that_ran_counts_as_run(release):
    result = of(release, ("x * 2", "x * 3"))
    assert (result.ran, result.unrun, result.unreached) == (1, 0, {})
    assert result.few == ("helper",)


def test_many_that_ran_are_not_named(release, monkeypatch):
    monkeypatch.setattr(compare, "FEW", 0)
    assert of(release, ("x * 2", "x * 3")).few == ()


@pytest.mark.parametrize(
    ("change", "name", "near"),
    [
        (("x + mask", "x - mask"), "TinyModel._masked", "own"),  # a branch that was not taken
        (("return n\n", "return n + 1\n"), "TinyModel.resize", "own"),  # users call it
    ],
)
def test_a_changed_function_within_reach_that_did_not_run_is_listed(release, change, name, near):
    result = of(release, change)
    assert (result.ran, unrun(result)) == (0, [(name, near)])


MASKED = ("x = self._masked(x, mask)", "x = self._masked(mask, x)")
BRANCH = lines("x = self._masked")


def joined(*tables):
    return {file: [n for table in tables for n in table[file]] for file in tables[0]}


def test_a_function_that_ran_but_not_where_it_differs_is_listed(release):
    result = of(release, MASKED)
    assert (result.ran, result.unrun, result.elsewhere) == (0, 1, 1)
    (entry,) = result.first
    assert (entry.name, entry.near, entry.ran_elsewhere) == ("TinyModel.forward", "own", True)


@pytest.mark.parametrize(
    ("changes", "entered"),
    [
        ([MASKED], joined(RAN, BRANCH)),  # the branch ran
        ([MASKED, ("for key in ROPES", "for key in list(ROPES)")], RAN),  # another line ran
        ([("def forward(self, x, mask=None)", "def forward(self, x, mask=0)")], RAN),  # a default
    ],
)
def test_a_function_that_ran_where_it_differs_counts_as_run(release, changes, entered):
    result = of(release, *changes, entered=entered)
    assert (result.ran, result.unrun, result.elsewhere) == (1, 0, 0)


def test_a_line_that_only_the_reference_has_counts_by_whether_it_ran_there(release):
    gone = (f"            {MASKED[0]}\n", "            pass\n")
    assert of(release, gone).elsewhere == 1
    assert of(release, gone, entered=joined(RAN, BRANCH)).ran == 1


def test_other_messages_in_what_ran_do_not_hide_that_the_rest_did_not_run(release):
    message = ("        for key in ROPES", "        logger.info('x')\n        for key in ROPES")
    assert of(release, MASKED, message).elsewhere == 1


@pytest.mark.parametrize(
    "change",
    [("return 0", "return 9"), ("def lonely(x):\n    return x", "def lonely(x):\n    return -x")],
)
def test_what_nothing_refers_to_is_out_of_reach(release, change):
    result = of(release, change)
    assert (result.changed, result.unreached) == (0, {"name": 1})


def test_what_one_release_alone_has_counts_by_what_calls_it(release):
    result = of(
        release,
        ("return helper(x)", "return helper(new(x))"),
        ("class OtherHead", "def new(x):\n    return x\n\nclass OtherHead"),
    )
    assert (result.ran, result.unrun) == (1, 0)


def test_a_file_that_cannot_be_read_is_named(release):
    result = of(release, ("class Cache:", "class Cache(:"))
    assert result.unread == ("cache.py",)


def test_the_nearest_come_first(release):
    result = of(release, ("x + mask", "x - mask"), ("return n\n", "return n + 1\n"))
    assert [name for name, _ in unrun(result)] == ["TinyModel._masked", "TinyModel.resize"]


def test_a_planted_change_that_no_check_runs_comes_first(release):
    """Its clean twin: the same function, entered by a check."""
    changes = [
        ("x + mask", "x - mask"),
        ("return n\n", "return n + 1\n"),
        ("return 17", "return 19"),
    ]
    result = of(release, *changes)
    first = result.first[0]
    assert (first.name, first.area, first.off) == ("TinyModel._masked", "model", ())
    entered = lines("def forward(self, x, mask", "def helper", "def _masked")
    assert "TinyModel._masked" not in [
        entry.name for entry in of(release, *changes, entered=entered).first
    ]


def test_a_part_of_the_model_that_was_not_fed_says_what_to_give(release):
    """Its clean twin: the same class, never made, is out of reach."""
    result = of(release, ("return x, OtherHead", "return -x, OtherHead"))
    assert [(e.name, e.area) for e in result.first] == [("TinyModel.image_features", "image")]


def test_what_only_a_check_ran_that_raised_did_not_run(release):
    aside = lines("def _masked")
    result = of(release, ("x + mask", "x - mask"), aside=aside)
    assert (result.ran, result.unrun, result.aside) == (0, 1, 1)
    assert result.first[0].aside


@pytest.mark.parametrize(
    ("words", "unrun_names", "unreached"),
    [
        ((), [], {"config": 2}),
        (("yarn",), ["yarn"], {"config": 1}),
        (("yarn", "linear"), ["linear", "yarn"], {}),
    ],
)
def test_what_stands_in_a_table_is_within_reach_of_a_config_that_names_it(
    release, words, unrun_names, unreached
):
    changes = [("x // 11", "x // 12"), ("x // 13", "x // 14")]
    result = of(release, *changes, model=Model(frozenset(words)))
    assert [name for name, _ in unrun(result)] == unrun_names
    assert result.unreached == unreached


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("x // 3", "x // 4"), "package"),
        (("x // 5", "x // 6"), "family"),
        (("x // 7", "x // 8"), "input"),
        (("self.head = TinyModel()", "self.body = TinyModel()"), "class"),
        (("def get():\n    return 1", "def get():\n    return 2"), "message"),
    ],
)
def test_what_this_model_cannot_reach_is_counted_with_the_reason(release, change, why):
    imported = {**RAN, "models/tiny/modeling_tiny.py": RAN[OWN]}
    assert of(release, change, entered=imported).unreached == {why: 1}


@pytest.mark.parametrize(
    ("unset", "counts"), [((), (1, {})), (("joins_rows",), (0, {"config": 1}))]
)
def test_what_stands_behind_a_field_that_the_config_leaves_unset_is_out_of_reach(
    release, monkeypatch, unset, counts
):
    """generate() prepares the decoder's ids of encoder-decoders alone."""
    asked = "def helper(x):\n    if x.config.joins_rows:\n        x = joined(x)\n"
    text = f"{asked}    return x\n\ndef joined(x):\n    return x * 19\n"
    monkeypatch.setitem(FILES, "utils/__init__.py", text)
    ran = {**RAN, "utils/__init__.py": [1]}
    step = of(release, ("x * 19", "x * 23"), entered=ran, model=Model(unset=frozenset(unset)))
    assert (step.unrun, step.unreached) == counts


def test_what_an_import_calls_is_no_change_of_a_model(release, monkeypatch):
    """The Auto classes are finished by a function when transformers is imported."""
    text = UTILS + "\ndef finished(x):\n    return x * 19\n\nDONE = finished(1)\n"
    monkeypatch.setitem(FILES, "utils/__init__.py", text)
    step = of(release, ("x * 19", "x * 23"))
    assert (step.unrun, step.unreached) == (0, {"message": 1})


def test_texts_that_nobody_asked_for_are_within_reach(release):
    result = of(release, ("x // 7", "x // 8"), model=Model(off=frozenset({"texts", "usage"})))
    assert [(e.name, e.area, e.off) for e in result.first] == [
        ("Tokenizer.encode", "text", ("texts",))
    ]


def test_a_function_that_its_subclasses_compute_is_none(release):
    assert of(release, ("raise NotImplementedError", "raise ValueError")).changed == 0


def test_another_cache_does_not_come_before_a_method_of_the_model(release):
    result = of(
        release, ("return 17", "return 18"), ("return n, quantize", "return n + 1, quantize")
    )
    assert unrun(result)[0] == ("TinyModel.save_parts", "own")


@pytest.mark.parametrize(("generates", "counts"), [(True, (1, {})), (False, (0, {"class": 1}))])
def test_generate_is_out_of_reach_of_a_model_that_does_not_generate(
    release, monkeypatch, generates, counts
):
    """An encoder makes a GenerationConfig at most: no argument of generate() can be given to it."""
    import_of = "from ...utils import helper"
    monkeypatch.setitem(
        FILES, OWN, MODELING.replace(import_of, "from ...generation.utils import helper")
    )
    monkeypatch.setitem(FILES, "generation/utils.py", "def helper(x):\n    return x * 19\n")
    step = of(release, ("x * 19", "x * 23"), model=Model(generates=generates))
    assert (step.unrun, step.unreached) == counts


@pytest.mark.parametrize(
    ("file", "text", "counts"),
    [
        ("distributed/mixin.py", "def helper(x):\n    return x * 19\n", (0, {"package": 1})),
        ("utils/generic.py", "def helper(x):\n    return x * 19\n", (1, {})),
        (
            "utils/generic.py",
            ("def helper(x):\n    return tp_barrier(x)\n\ndef tp_barrier(x):\n    return x * 19\n"),
            (0, {"package": 1}),
        ),
        (
            "utils/generic.py",
            "def helper(x):\n    return x + H_DOCSTRING\n\nH_DOCSTRING = [lambda x: x * 19]\n",
            (0, {"message": 1}),
        ),
        (
            "utils/generic.py",
            "def helper(x):\n    return x + H_STRINGS\n\nH_STRINGS = [lambda x: x * 19]\n",
            (1, {}),
        ),
    ],
)
def test_code_for_several_devices_and_texts_of_docs_are_out_of_reach(
    release, monkeypatch, file, text, counts
):
    module = file.removesuffix(".py").replace("/", ".")
    monkeypatch.setitem(FILES, OWN, MODELING.replace("...utils import", f"...{module} import"))
    monkeypatch.setitem(FILES, file, text)
    step = of(release, ("x * 19", "x * 23"))
    assert (step.unrun, step.unreached) == counts


@pytest.mark.parametrize(("name", "counts"), [("__init__", (0, {"class": 1})), ("build", (1, {}))])
def test_a_part_of_models_that_the_load_did_not_make_is_out_of_reach(
    release, monkeypatch, name, counts
):
    """A class without ``__init__`` may be in use all the same: it is listed."""
    import_of = "from ...utils import helper"
    monkeypatch.setitem(
        FILES, OWN, MODELING.replace(import_of, "from ...modeling_layers import Mtp as helper, Mtp")
    )
    text = f"class Mtp:\n    def {name}(self):\n        self.n = 1\n\n    def forward(self, x):\n        return x * 19\n"
    monkeypatch.setitem(FILES, "modeling_layers.py", text)
    monkeypatch.setitem(
        FILES, OWN, FILES[OWN].replace("return helper(x)", "return Mtp().forward(x)")
    )
    step = of(release, ("x * 19", "x * 23"))
    assert (step.unrun, step.unreached) == counts


@pytest.mark.parametrize(("generates", "counts"), [(True, (1, {})), (False, (0, {"name": 1}))])
def test_what_only_generate_calls_is_out_of_reach_of_a_model_that_does_not_generate(
    release, monkeypatch, generates, counts
):
    imports = "from ...generation.utils import helper"
    monkeypatch.setitem(FILES, OWN, MODELING.replace("from ...utils import helper", imports))
    generation = "from ..masking_utils import masks\n\ndef helper(x):\n    return masks(x)\n"
    monkeypatch.setitem(FILES, "generation/utils.py", generation)
    monkeypatch.setitem(FILES, "masking_utils.py", "def masks(x):\n    return x * 19\n")
    step = of(release, ("x * 19", "x * 23"), model=Model(generates=generates))
    assert (step.unrun, step.unreached) == counts


def frame(function, file=OWN, code="", text=MODELING):
    """Return a frame in the line of a text that has this code, else in the first one of the function."""
    wanted = code or f"def {function}"
    line = next(n for n, each in enumerate(text.splitlines(), 1) if wanted in each)
    return Frame(file=f"transformers/{file}", line=line, function=function)


def test_frames_whose_function_the_reference_has_otherwise_are_told_from_others(release):
    forward, helper = (
        frame("forward", code="return helper(x)"),
        frame("helper", "utils/__init__.py", "return x * 2", UTILS),
    )
    torch = Frame(file="torch/nn/functional.py", line=3, function="linear")
    frames = (forward, helper, torch)
    sides = release("a"), release("b", ("x * 2", "x * 3"))
    assert changed_frames(frames, *sides) == ((helper.file, helper.line),)
    assert changed_frames(frames, sides[0], release("c", ("x * 2", "x  *  2"))) == ()


def test_a_function_that_a_decorator_puts_around_another_one_is_no_frame_that_changed(release):
    texts = (
        "def helper(x):\n    return x * {}",
        "def helper(x):\n    def wrapper():\n        return x * {}",
    )
    (plain, wrapped) = texts
    old = release("a", (plain.format(2), wrapped.format(2)))
    new = release("b", (plain.format(2), wrapped.format(3)))
    line = UTILS.splitlines().index("def helper(x):") + 3
    inside = Frame(file="transformers/utils/__init__.py", line=line, function="wrapper")
    assert changed_frames((inside,), old, new) == ()
    outside = inside.model_copy(update={"line": line - 2, "function": "helper"})
    assert changed_frames((outside,), old, new)
