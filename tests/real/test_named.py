"""Custom code on real stacks: each defect is found under its name, and each repair is complete.

long_named.py has all defects, and every model in the releases in the middle, too.
"""

import pytest

CUSTOM = "tests/custom"
DEFECTS = {
    "import-losskwargs": "SB101",
    "import-transformerskwargs": "SB101",
    "import-removed": "SB102",
    "no-generation-mixin": "SB103",
    "head-mask": "SB104",
    "extended-mask": "SB104",
    "dtype-keyword": "SB105",
    "config-attribute": "SB201",
    "rope-theta-missing": "SB202",
    "strict-config": "SB205",
    "inv-freq-buffer": "SB301",
    "sinusoid-table": "SB301",
    "missing-parameter": "SB302",
    "meta-init-item": "SB305",
    "meta-init-numpy": "SB305",
    "tied-list": "SB401",
    "no-post-init": "SB402",
    "tie-weights-signature": "SB403",
    "untied": "SB404",
    "rope-default-key": "SB501",
    "rotary-device": "SB502",
    "rope-theta-default": "SB503",
    "inv-freq-dtype": "SB504",
    "rope-scaling-filled": "SB507",
    "mask-4d-longer": "SB602",
    "create-causal-mask": "SB603",
    "library-sdpa": "SB604",
    "cache-attribute": "SB701",
    "legacy-cache": "SB701",
    "cache-subscript": "SB702",
    "cache-crop": "SB707",
    "cache-truthiness": "SB708",
    "cache-keyword": "SB709",
    "cache-name": "SB713",
    "cache-output": "SB713",
    "cache-window": "SB725",
    "tokenizer-llama": "SB801",
    "tokenizer-backend": "SB810",
    "layer-tuple": "SB803",
    "logits-to-keep": "SB804",
    "generate-legacy": "SB713",
}
"""Defect -> the finding that must be among those of at least one of its cells."""
REPAIRED = (
    "cache-crop",
    "cache-name",
    "cache-truthiness",
    "dtype-keyword",
    "import-losskwargs",
    "import-transformerskwargs",
    "inv-freq-buffer",
    "inv-freq-dtype",
    "library-sdpa",
    "library-rotary-init",
    "meta-init-numpy",
    "missing-parameter",
    "rope-default-key",
    "rope-theta-missing",
    "sinusoid-table",
    "tie-weights-signature",
    "tokenizer-backend",
    "tokenizer-llama",
)
IN_EVERY_RELEASE = (
    "healthy",
    "meta-init-item",
    "create-causal-mask",
    "tokenizer-llama",
    "tokenizer-llama.repaired",
)
"""Models that a release in the middle shows to be what they are; for the others the oldest and the newest do."""
TEXT = "prompts: {short: The capital of France is}"
SETTINGS = {
    "healthy": "training: true, arguments: true, other_classes: true, pipelines: true",
    "inv-freq-dtype": "dtypes: [bfloat16]",
    "own-load": "questions: [usage]",
    "prepare-inputs": "questions: [relations, usage]",
    "tokenizer-backend": TEXT,
    "tokenizer-llama": TEXT,
}
"""Model -> what its entry says besides."""
ALWAYS = {"SB103", "SB317"}
"""What is found of a cell without its defect, too: a head that generates in no release, and a model
that cannot be saved, which is no matter of the reference."""
API = {"SB802", "SB808", "SB809"}
"""What 5.x does to every tokenizer, and no checkpoint can repair: said of the release."""
HEAD = """
environments: ["4.48", "4.57", "5.2", "5.x"]
defaults:
  dtypes: [float32]
  greedy: 4
  questions: []
  prompts:
    short: {length: 9}
    padded: {batch: [{length: 5}, {length: 13}]}
models:
"""


HALF = """\
--- a/config.json
+++ b/config.json
@@ -24,3 +24,3 @@
   "tie_word_embeddings": true,
-  "torch_dtype": "float32",
+  "torch_dtype": "bfloat16",
   "use_cache": true
"""


def model(name, *patches):
    told = ", ".join(f"{root}/{patch}.diff" for root, patch in patches)
    patch = f", patch: [{told}]" if told else ""
    more = "".join(f", {SETTINGS[n]}" for n in [name.removesuffix(".repaired")] if n in SETTINGS)
    return f"  {name}: {{path: {root_of()}/healthy, trust_remote_code: true{more}{patch}}}"


def root_of():
    from tests.real.conftest import ROOT

    return ROOT / CUSTOM


NAMES = ("healthy", *DEFECTS, *(f"{name}.repaired" for name in REPAIRED))
CHOSEN = {
    "healthy",
    "tokenizer-llama",
    *{code[:3]: name for name, code in DEFECTS.items()}.values(),
    *(f"{name}.repaired" for name in (*REPAIRED[::6], "tokenizer-llama")),
}
"""What is run here: one defect for each area of findings, and a sixth of the repaired models."""


def pytest_generate_tests(metafunc):
    """Test the defects and the repaired models that the file chooses."""
    chosen = metafunc.module.CHOSEN
    if "defect" in metafunc.fixturenames:
        metafunc.parametrize("defect", [name for name in DEFECTS if name in chosen])
    if "repaired" in metafunc.fixturenames:
        names = [f"{name}.repaired" for name in REPAIRED]
        metafunc.parametrize("repaired", [name for name in names if name in chosen])


@pytest.fixture(scope="module")
def at_the_ends():
    """Return the models that are run in the oldest and in the newest release alone."""
    return [name for name in NAMES if name in CHOSEN and name not in IN_EVERY_RELEASE]


@pytest.fixture(scope="module")
def folder(request, tmp_path_factory, at_the_ends):
    made, root = tmp_path_factory.mktemp("custom"), root_of()
    patches = {"healthy": ()}
    patches |= {name: ((root, name),) for name in DEFECTS}
    patches |= {f"{n}.repaired": ((root, n), (root, f"{n}.repair")) for n in REPAIRED}
    chosen = request.module.CHOSEN
    lines = [model(name, *of_model) for name, of_model in patches.items() if name in chosen]
    if at_the_ends:
        models = ", ".join(at_the_ends)
        rule = (
            f'  - {{model: [{models}], environment: ["4.57", "5.2"], reason: two releases show it}}'
        )
        lines += ["exclude:", rule]
    (made / "matrix.yaml").write_text(HEAD + "\n".join(lines))
    return made


def of(cells, model):
    return [cell for (name, _), cell in cells.items() if name == model]


def codes(cell):
    """Return the codes of a cell, without what every model of its own code has against 4.48, the reference.

    4.48 loads no tokenizer for one whose config names no tokenizer_class. Its Trainer decays the weights of custom
    norms, so that an optimizer's state of 4.48 has other groups.
    """
    of_reference = {f.code for f in cell.findings if f.code == "SB861" and f.raises == "4.48"}
    return {f.code for f in cell.findings} - of_reference - {"SB872"}


def test_the_healthy_model_is_the_same_bits_everywhere_and_has_no_finding(cells):
    healthy = of(cells, "healthy")
    assert [cell.verdict for cell in healthy] == ["reference", *["identical"] * 3]
    assert not [*filter(None, map(codes, healthy))]


def test_the_weight_decay_of_custom_norms_is_listed_for_the_releases_that_changed_it(report):
    """4.x decays the weights of custom norms, 5.x no parameter of such a name."""
    shown = [
        stack.id
        for stack in report.stacks
        for finding in stack.findings
        if finding.code == "SB856" and "healthy" in finding.models
    ]
    assert shown == [stack.id for stack in report.stacks[2:]]


def test_a_defect_is_found_under_its_name(cells, defect):
    assert DEFECTS[defect] in set().union(*map(codes, of(cells, defect)))


def test_a_cell_without_a_defect_has_no_finding(cells, defect):
    for cell in of(cells, defect):
        if cell.verdict == "identical":
            assert codes(cell) <= ALWAYS, (defect, cell.cell.stack)


def test_a_repaired_model_is_the_same_bits_everywhere(cells, at_the_ends, repaired):
    found = of(cells, repaired)
    releases = 2 if repaired in at_the_ends else 4
    assert [cell.verdict for cell in found] == ["reference", *["identical"] * (releases - 1)]
    assert set().union(*map(codes, found)) == set()


def test_a_tokenizer_is_told_apart_by_what_each_release_makes_of_it(cells):
    """BOS and side of a llama tokenizer move between releases, and so does what its calls return."""
    _, *newer = of(cells, "tokenizer-llama")
    assert [codes(cell) for cell in newer] == [
        set(),
        {"SB801", "SB807", "SB827"},
        {"SB801", "SB806", "SB827"},
    ]


def test_what_a_release_does_to_every_tokenizer_is_said_of_the_release(report):
    said = {
        stack.id: {found.code: found.models for found in stack.findings} for stack in report.stacks
    }
    assert {stack: set(found) & API for stack, found in said.items()} == {
        "4.48": set(),
        "4.57": set(),
        "5.2": API,
        "5.x": API,
    }
    continued = {stack: "SB826" in found for stack, found in said.items()}
    assert continued == {"4.48": False, "4.57": True, "5.2": True, "5.x": True}
    # a model's tokenizer is asked whether or not it carries a defect
    for stack in ("5.2", "5.x"):
        assert set(said[stack]["SB809"]) >= {"tokenizer-llama", "tokenizer-llama.repaired"}
    assert not any(codes(cell) & (API | {"SB826"}) for row in report.rows for cell in row.cells)


def test_weights_that_init_weights_draws_anew_are_named(tmp_path, run_in):
    root = root_of()
    text = HEAD.replace('"4.57", "5.2", "5.x"', '"5.1.0"')
    text += model("init-overwrites", (root, "init-overwrites"))
    (tmp_path / "matrix.yaml").write_text(text)
    (row,) = run_in(tmp_path).rows
    old, new = row.cells
    assert codes(old) == set()
    assert "SB303" in codes(new)
    told = " ".join(line for finding in new.findings for line in finding.evidence)
    assert "_init_weights calls" in told


def test_positions_that_an_own_method_does_not_cut_are_named(tmp_path, run_in):
    """Up to 5.23 the method gets the cache; from 5.24 on it feeds the whole text, and SB713 is named."""
    text = HEAD.replace('"4.57", "5.2", "5.x"', '"5.23.0"')
    text += model("generate-legacy", (root_of(), "generate-legacy"))
    (tmp_path / "matrix.yaml").write_text(text)
    (row,) = run_in(tmp_path).rows
    assert [codes(cell) for cell in row.cells] == [set(), {"SB805"}]


OWN_METHODS = {"prepare-inputs": {"SB729", "SB890"}, "own-load": {"SB324"}}


def test_what_an_own_method_of_an_older_time_passes_over_is_named(tmp_path, run_in):
    text = HEAD.replace('"4.57", "5.2", "5.x"', '"5.x"')
    for name in OWN_METHODS:
        patches = (root_of(), name), (root_of(), f"{name}.repair")
        text += f"{model(name, patches[0])}\n{model(f'{name}.repaired', *patches)}\n"
    (tmp_path / "matrix.yaml").write_text(text)
    rows = iter(run_in(tmp_path).rows)
    for lost in OWN_METHODS.values():
        planted, repaired = (codes(row.cells[1]) for row in (next(rows), next(rows)))
        assert lost <= planted
        assert not (lost | {"SB946"}) & repaired


def test_a_default_dtype_that_changed_is_named(tmp_path, run_in):
    patch = tmp_path / "half.diff"
    patch.write_text(HALF)
    text = HEAD.replace('"4.57", "5.2", "5.x"', '"5.x"')
    (tmp_path / "matrix.yaml").write_text(text + model("half", (tmp_path, "half")))
    (row,) = run_in(tmp_path).rows
    old, new = row.cells
    assert codes(old) == set()
    assert codes(new) == {"SB306"}
    assert new.verdict == "identical"
