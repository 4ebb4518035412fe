"""Tests of what is read from sources: stated, made of other fields, or computed."""

import pytest

from bench.defaults import PAGE, Reader, with_figures
from bench.stated import written
from bench.stated.sources import of_file, shared_constants
from samebits.defaults.table import Table


def read(body, kind="config", bases="PreTrainedConfig", constants=""):
    text = f"class Config({bases}):\n" + "".join(f"    {line}\n" for line in body.splitlines())
    return of_file(text, kind, shared_constants(constants))["Config"]


def test_fields_of_a_dataclass_are_stated():
    stated = read(
        'model_type = "llama"\n'
        "base_model_tp_plan = {}\n"
        "hidden_size: int = 4096\n"
        "scale: float = interval(min=0.0)(default=2**-3)\n"
        "sizes: tuple = (1, 2)\n"
        "names: list = field(default_factory=list)\n"
        "auto: ClassVar[str] = 'x'\n"
        "made: int = compute()\n"
    )
    assert stated.type == "llama"
    assert stated.fields == {"hidden_size": 4096, "scale": 0.125, "sizes": [1, 2], "names": []}
    assert stated.computed == {"made"}


def test_arguments_of_init_are_stated_with_what_the_body_makes_of_them():
    stated = read(
        "def __init__(self, a=1, b=None, c=None, d=None, window=4096, use_window=False, **kwargs):\n"
        "    self.a = a\n"
        "    self.b = b if b is not None else 7\n"
        "    if c is None:\n"
        "        c = a * 2\n"
        "    self.c = c\n"
        "    self.d = kwargs.pop('d', 3)\n"
        "    self.window = window if use_window else None\n"
        "    super().__init__(tie=True, **kwargs)\n"
    )
    assert stated.fields == {
        "a": 1,
        "b": 7,
        "c": 2,
        "d": 3,
        "window": None,
        "use_window": False,
        "tie": True,
    }
    assert stated.needs == {"c": ("a",), "window": ("use_window",)}


@pytest.mark.parametrize(
    "body",
    [
        "if torch.cuda.is_available():\n    self.a = 2",
        "for key in keys:\n    self.a = key",
        "self.a = helper(a)",
        "self.a, self.b = helper()",
        "self.a.update(b=1)",
        "self.a['x'] = helper()",
        "try:\n    self.a = 3\nexcept ValueError:\n    pass",
    ],
)
def test_what_may_or_may_not_run_has_no_stated_value(body):
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    stated = read(f"def __init__(self, a=1):\n    self.a = a\n{lines}")
    assert stated.computed - {"b"} == {"a"}
    assert stated.fields == {}


@pytest.mark.parametrize(
    "test",
    [
        "'old' in kwargs",
        "kwargs.get('old') is not None",
        "(old := kwargs.pop('old', None)) is not None",
    ],
)
def test_a_branch_for_a_keyword_does_not_run(test):
    stated = read(
        f"def __init__(self, a=1, **kwargs):\n    self.a = a\n    if {test}:\n        self.a = 2\n"
    )
    assert stated.fields == {"a": 1}


def test_processors_have_attributes_enums_and_constants_of_the_library():
    stated = read(
        "resample = PILImageResampling.BICUBIC\n"
        "image_mean = IMAGENET_MEAN\n"
        "size = {'shortest_edge': 224}\n"
        "model_input_names = ['pixel_values']\n"
        "def __init__(self, crop=None):\n"
        "    crop = crop if crop is not None else {'height': 2, 'width': 2}\n"
        "    crop = get_size_dict(crop, param_name='crop')\n"
        "    self.crop = crop\n",
        kind="processor",
        constants="IMAGENET_MEAN = [0.5, 0.25]\n",
    )
    assert stated.fields == {
        "resample": 3,
        "image_mean": [0.5, 0.25],
        "size": {"shortest_edge": 224},
        "crop": {"height": 2, "width": 2},
    }


def test_generation_takes_its_defaults_from_the_dict_of_the_release():
    stated = read(
        "def __init__(self, **kwargs):\n"
        "    self.top_k = kwargs.pop('top_k', None)\n"
        "    self.num_beams = kwargs.pop('num_beams', 2)\n"
        "def _get_default_generation_params():\n"
        "    return {'top_k': 50, 'num_beams': 1}\n",
        kind="generation",
    )
    assert stated.fields == {"top_k": 50, "num_beams": 2}


def test_a_dataclass_beside_the_generation_config_is_stated_and_so_is_a_call_of_it():
    text = (
        "class Config:\n    def __init__(self, **kwargs):\n"
        "        self.of_class = kwargs.pop('of_class', Own())\n"
        "        self.of_other = kwargs.pop('of_other', Other())\n"
        "@dataclass\nclass Own:\n    whole: bool = True\n    mode: str = 'fast'\n"
    )
    stated = of_file(text, "generation")
    assert stated["Own"].fields == {"whole": True, "mode": "fast"}
    assert stated["Config"].fields == {"of_class": {"mode": "fast", "whole": True}}
    assert stated["Config"].computed == {"of_other"}


def test_tokenizers_have_the_arguments_alone():
    stated = read(
        "def __init__(self, unk=AddedToken('<unk>', lstrip=True), legacy=None):\n"
        "    if legacy is None:\n        legacy = True\n    self.legacy = legacy\n",
        kind="tokenizer",
    )
    assert stated.fields == {"unk": "<unk>", "legacy": None}


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("self.a = a if a is not None else 7\n    self.a = a", None),
        ("self.a = {}\n    self.a['x'] = 3\n    self.a.setdefault('x', 4)", {"x": 3}),
        ("b = {'x': {}}\n    self.a = b\n    b['x'].setdefault('y', 5)", {"x": {"y": 5}}),
        ("self.a = kwargs.pop('old', 3)", 3),
        ("kwargs.setdefault('old', 4)\n    self.a = kwargs.get('old', 3)", 4),
        ("kwargs.setdefault('a', 4)\n    self.a = {'x': 1}.get('y', 2)", 2),
        ("self.a = [i * 2 if i else 'first' for i in range(3) if i != 1]", ["first", 4]),
        ("self.a = sum(math.ceil(n / 2) for n in [1, 2, 3])", 4),
    ],
)
def test_what_straight_code_makes_is_stated(body, value):
    stated = read(f"def __init__(self, a=None, **kwargs):\n    {body}\n")
    assert stated.fields["a"] == value


@pytest.mark.parametrize(
    "body",
    [
        "self.a['x'] = helper()",
        "b = {}\n    self.a = b\n    b.update(helper())",
        "if helper():\n        kwargs['old'] = 1\n    self.a = kwargs.pop('old', 3)",
        "self.a = [helper(i) for i in range(3)]",
        "self.a = [i for i in range(10**9)]",
        "self.align(a=self.a)",
        "kwargs['a'] = helper()",
        "kwargs.setdefault('a', 3)",
        "self._a, self._b = helper()",
    ],
)
def test_what_other_code_makes_is_not_stated(body):
    stated = read(f"def __init__(self, a=None, **kwargs):\n    self.a = a\n    {body}\n")
    assert "a" in stated.computed


def test_a_local_name_is_no_attribute_and_an_alias_is():
    stated = read(
        "attribute_map = {'layers': 'blocks'}\n"
        "size: int = None\n"
        "blocks: list = None\n"
        "def __post_init__(self, **kwargs):\n"
        "    size = self.size or 4\n"
        "    self.layers = ['x'] * 2\n"
    )
    assert stated.fields == {"size": None, "blocks": ["x", "x"]}


ROPE = """\
default_theta = {'slow': 1000.0}
rope_parameters: dict = None
def convert_rope_params_to_dict(self, **kwargs):
    theta = kwargs.pop('rope_theta', self.default_theta['slow'])
    if self.rope_parameters is None:
        self.rope_parameters = {'slow': {}}
    self.rope_parameters['slow'].setdefault('rope_theta', theta)
"""


def test_rope_parameters_that_a_class_completes_itself_are_followed():
    stated = read(f"{ROPE}    self.standardize_rope_params()\n    return kwargs\n")
    assert stated.fields == {"rope_parameters": {"slow": {"rope_theta": 1000.0}}}
    assert stated.needs == {"rope_parameters": ("rope_theta",)}
    assert read(f"{ROPE}    return kwargs\n").computed == {"rope_parameters"}
    twice = "    self.standardize_rope_params()\n    return super().convert_rope_params_to_dict()\n"
    assert read(f"{ROPE}{twice}").computed == {"rope_parameters"}


def test_after_the_base_rope_parameters_are_there():
    lines = (
        "rope_parameters: dict = None\n"
        "def __post_init__(self, **kwargs):\n"
        "    {}\n"
        "    if self.rope_parameters is None:\n"
        "        self.rope_parameters = {{'rope_theta': 5.0}}\n"
    )
    before, after = (read(lines.format(line)) for line in ("pass", "super().__post_init__()"))
    assert before.fields == {"rope_parameters": {"rope_theta": 5.0}}
    assert after.fields == {"rope_parameters": None}


def of_release(**files):
    """Return what the files of a release state together, each a config class of its own."""
    texts = {f"models/{name}/configuration_{name}.py": text for name, text in files.items()}
    base = (
        "class PreTrainedConfig:\n"
        "    tie_word_embeddings: bool = True\n"
        "    pad_token_id: int | None = None\n"
    )
    return Reader().sources({"utils/constants.py": "", "configuration_utils.py": base, **texts})


OUTER = (
    "class OuterConfig(PreTrainedConfig):\n"
    "    sub_configs_defaults = {{'text_config': {part}}}\n"
    "    text_config: dict | None = None\n"
    "    tie_word_embeddings: bool = False\n"
    "    def __post_init__(self, **kwargs):\n"
    "        super().__post_init__(**kwargs)\n"
    "        if not self.tie_word_embeddings and self.text_config.tie_word_embeddings:\n"
    "            self.tie_word_embeddings = True\n"
)
INNER = "class InnerConfig(PreTrainedConfig):\n    model_type = 'inner'\n    {field}\n    size: int = 3\n"
OF_TYPE = "SubConfigSpec(config_class=AutoConfig, model_type='inner'{more})"


@pytest.mark.parametrize(
    ("field", "part", "value", "needs"),
    [
        ("", "InnerConfig", True, ("text_config.tie_word_embeddings",)),
        (
            "tie_word_embeddings: bool = False",
            "InnerConfig",
            False,
            ("text_config.tie_word_embeddings",),
        ),
        ("", OF_TYPE.format(more=""), True, ("text_config",)),
        (
            "",
            OF_TYPE.format(more=", init_kwargs={'tie_word_embeddings': False}"),
            False,
            ("text_config",),
        ),
    ],
)
def test_what_a_config_inside_decides_is_stated_by_the_file_of_the_inner_one(
    field, part, value, needs
):
    stated = of_release(inner=INNER.format(field=field), outer=OUTER.format(part=part))
    outer = stated["OuterConfig"]
    assert outer.fields["tie_word_embeddings"] is value
    assert outer.needs["tie_word_embeddings"] == needs


@pytest.mark.parametrize(
    ("field", "part"),
    [
        ("", "UnknownConfig"),
        ("tie_word_embeddings: bool = compute()", "InnerConfig"),
        ("", OF_TYPE.format(more=", init_kwargs=compute()")),
        ("", OF_TYPE.format(more=", optional=True")),
    ],
)
def test_what_an_inner_config_of_unknown_defaults_decides_is_not_stated(field, part):
    stated = of_release(inner=INNER.format(field=field), outer=OUTER.format(part=part))
    assert "tie_word_embeddings" in stated["OuterConfig"].computed


@pytest.mark.parametrize(
    ("part", "parts"),
    [
        ("SubConfigSpec(config_class=AutoConfig, model_type='a')", {"text_config": "AutoConfig"}),
        ("SubConfigSpec(config_class=InnerConfig)", {"text_config": "InnerConfig"}),
        ("SubConfigSpec(config_class=InnerConfig, init_kwargs={'a': 1})", {}),
        ("SubConfigSpec(config_class=InnerConfig, optional=True)", {}),
    ],
)
def test_a_config_inside_has_the_defaults_of_its_class_unless_it_is_made_otherwise(part, parts):
    assert read(f"sub_configs_defaults = {{'text_config': {part}}}").parts == parts


@pytest.mark.parametrize(
    ("body", "is_overwritten"),
    [
        ("self.pad_token_id = pad_token_id\n    super().__init__(**kwargs)", True),
        ("super().__init__(**kwargs)\n    self.pad_token_id = pad_token_id", False),
        (
            "self.pad_token_id = pad_token_id\n    super().__init__(pad_token_id=pad_token_id)",
            False,
        ),
    ],
)
def test_what_the_base_sets_after_its_class_has_the_default_of_the_base(body, is_overwritten):
    text = (
        "class AConfig(PreTrainedConfig):\n"
        f"  def __init__(self, pad_token_id=-1, **kwargs):\n    {body}\n"
    )
    fields = of_release(a=text)["AConfig"].fields
    assert fields == ({} if is_overwritten else {"pad_token_id": -1})


def test_a_method_that_returns_a_value_is_followed_and_one_that_does_more_is_not():
    stated = read(
        "def __init__(self, n=4, every=2, **kwargs):\n"
        "    self.kinds = self.kinds_of(n, every)\n"
        "    self.other = self.more(n)\n"
        "def kinds_of(self, count, step):\n"
        "    'What each layer is.'\n"
        "    last = ['c']\n"
        "    return ['a' if i % step else 'b' for i in range(count)] + last\n"
        "def more(self, n):\n"
        "    self.n = 3\n"
        "    return n\n"
    )
    assert stated.fields["kinds"] == ["b", "a", "b", "a", "c"]
    assert stated.needs["kinds"] == ("every", "n")
    assert stated.computed == {"other"}


def test_what_a_loop_adds_to_the_keywords_has_no_stated_value():
    stated = read(
        "def __init__(self, inner=None, **kwargs):\n"
        "    for key in ['pad_token_id', 'eos_token_id']:\n"
        "        if key not in kwargs:\n"
        "            kwargs[key] = getattr(inner, key)\n"
        "    super().__init__(**kwargs)\n"
    )
    assert stated.computed - {"inner"} == {"pad_token_id", "eos_token_id"}
    assert not stated.overwritten & stated.computed


MADE = (
    "class OuterConfig(PreTrainedConfig):\n"
    "    tie_word_embeddings: bool = False\n"
    "    def __init__(self, text_config=None, size=7, **kwargs):\n"
    "        if isinstance(text_config, dict):\n"
    "            text_config = AutoConfig.for_model(**text_config)\n"
    "        elif text_config is None:\n"
    "            text_config = {made}\n"
    "        self.text_config = text_config\n"
    "        {more}\n"
    "        self.size = {size}\n"
    "        super().__init__(**kwargs)\n"
)


@pytest.mark.parametrize("size", ["self.text_config.size", "text_config.size"])
@pytest.mark.parametrize(
    ("made", "value"),
    [
        ("CONFIG_MAPPING['inner']()", 3),
        ("AutoConfig.for_model('inner')", 3),
        ("AutoConfig.for_model('inner', **{'size': 5})", 5),
        ("InnerConfig(size=5)", 5),
    ],
)
def test_a_config_that_the_code_makes_has_the_fields_of_its_class(made, value, size):
    outer = MADE.format(made=made, more="pass", size=size)
    stated = of_release(inner=INNER.format(field=""), outer=outer)["OuterConfig"]
    assert stated.fields["size"] == value
    assert "text_config" in stated.needs["size"]
    assert "text_config" in stated.computed


@pytest.mark.parametrize(
    ("made", "more"),
    [
        ("CONFIG_MAPPING[compute()]()", "pass"),
        ("CONFIG_MAPPING['unknown']()", "pass"),
        ("InnerConfig(size=compute())", "pass"),
        ("InnerConfig()", "self.text_config.size = compute()"),
        ("InnerConfig()", "text_config.update(compute())"),
    ],
)
def test_a_config_of_another_kind_or_one_that_is_changed_has_no_stated_fields(made, more):
    outer = MADE.format(made=made, more=more, size="self.text_config.size")
    stated = of_release(inner=INNER.format(field=""), outer=outer)["OuterConfig"]
    assert "size" in stated.computed


ROTARY = (
    "class PreTrainedConfig(RotaryEmbeddingConfigMixin):\n"
    "    def __post_init__(self, **kwargs):\n        pass\n"
)


@pytest.mark.parametrize(
    ("theta", "value"), [("default_theta = 50.0", 50.0), ("rope_theta: float = compute()", None)]
)
def test_what_the_base_completes_is_read_as_it_is_completed(theta, value):
    config = (
        "class AConfig(PreTrainedConfig):\n"
        f"    {theta}\n"
        "    rope_parameters: dict | None = None\n"
        "    length: float = 1.0\n"
        "    def __post_init__(self, **kwargs):\n"
        "        super().__post_init__(**kwargs)\n"
        "        self.length = self.rope_parameters['rope_theta']\n"
    )
    rope = "class RotaryEmbeddingConfigMixin:\n    default_theta = 50.0\n"
    files = {
        "utils/constants.py": "",
        "configuration_utils.py": ROTARY,
        "modeling_rope_utils.py": rope,
        "models/a/configuration_a.py": config,
    }
    stated = Reader().sources(files)["AConfig"]
    assert stated.fields.get("length") == value
    assert ("length" in stated.computed) is (value is None)


@pytest.mark.parametrize(
    ("post", "value", "needs"),
    [
        ("self.labels = kwargs.get('labels', 2)", 2, ("names",)),
        ("self.labels = self.labels if self.labels is not None else 2", 9, ("names",)),
        ("self.labels = compute()", None, ()),
        ("self.labels = self.labels or 2", None, ()),
    ],
)
def test_a_base_that_runs_after_its_class_keeps_or_sets_again_what_the_class_gives(
    post, value, needs
):
    base = (
        "class PreTrainedConfig:\n"
        "    names: dict | None = None\n"
        "    def __post_init__(self, **kwargs):\n"
        f"        if self.names is None:\n            {post}\n"
    )
    config = "class AConfig(PreTrainedConfig):\n    labels: int = 9\n"
    files = {"utils/constants.py": "", "configuration_utils.py": base}
    table = Table([], {})
    written.add(table, "1.0", Reader().sources({**files, "models/a/configuration_a.py": config}))
    default = table.default("AConfig", "labels", "1.0")
    assert default.is_stated is (value is not None)
    if default.is_stated:
        assert (default.value, tuple(default.needs)) == (value, needs)


def test_a_default_of_the_installed_torch_is_stated_with_the_torch_that_it_needs():
    stated = read(
        "usual = 'slow'\n"
        "if is_torch_available():\n"
        "    from .utils import is_torch_greater_or_equal_than_2_8\n"
        "    if is_torch_greater_or_equal_than_2_8:\n"
        "        usual = 'fast'\n"
        "other = 'slow'\n"
        "if is_flash_available():\n"
        "    other = 'fast'\n"
        "optim: str = field(default=usual)\n"
        "also: str = field(default=other)\n",
        kind="training",
    )
    assert stated.fields == {"optim": "fast"}
    assert stated.needs == {"optim": ("torch>=2.8",)}
    assert stated.computed == {"also"}


@pytest.mark.parametrize(
    ("made", "takes"),
    [
        ("'all' if self.count else 'no'", {"count": [False]}),
        ("'no' if self.count else 'all'", {"count": [True]}),
        ("compute(self.count)", {}),
    ],
)
def test_an_older_form_that_the_code_takes_as_its_default_is_noted(made, takes):
    stated = read(
        "count: str | bool = 'no'\n"
        "def __post_init__(self):\n"
        "    if isinstance(self.count, bool):\n"
        f"        self.count = {made}\n",
        kind="training",
    )
    assert stated.fields == {"count": "no"}
    assert stated.takes == takes


def test_the_figures_stand_between_the_marks_of_the_page():
    text = PAGE.read_text("utf-8")
    assert with_figures(text, "Of 2") == with_figures(with_figures(text, "Of 1"), "Of 2")
    with pytest.raises(ValueError, match="the page has no"):
        with_figures("none", "Of 2")
