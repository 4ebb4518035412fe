"""A report with every verdict and every section; the gold files are written from it."""

from functools import partial

from samebits.compare.registry import signal_names
from samebits.diagnose.exit_code import exit_code
from samebits.pipeline import trim
from samebits.questions.relations.records import (
    CacheTensor,
    GreedySplit,
    Inapplicable,
    LayerDistance,
    Precision,
    Relation,
    RelationsOfRow,
    RelationsSignal,
    SampleAverages,
    TopDifference,
)
from samebits.records.capture import (
    AttentionCall,
    AttentionSignal,
    Failure,
    Frame,
    SdpaCall,
    Skip,
    Unfinished,
)
from samebits.records.comparison import (
    CellResult,
    Choices,
    Difference,
    Extreme,
    FactChange,
    ItemComparison,
    LikelyToken,
    Metrics,
    SignalComparison,
    TokenSplit,
)
from samebits.records.distance import Distance
from samebits.records.finding import Explanation, RuleText
from samebits.records.ids import EXPLANATORY, CellId, Variant, Verdict
from samebits.records.report import (
    CheckpointReport,
    ExpectedReport,
    MachineReport,
    Report,
    Row,
    StackReport,
)
from samebits.records.subject import Subject
from samebits.records.tensor import TensorRef

STACKS = ("4.48", "4.57", "5.0", "5.9", "5.23")

NEVER_WRITTEN = RuleText(
    code="SB301",
    name="a buffer is never written",
    kind="silent",
    looks_for="x",
    cause="x",
    remedy="compute it in forward",
    releases="x",
)
"""A rule with a remedy, for reports that show findings."""


def known_as(cell, *findings):
    """Return a cell with findings that explain its verdict."""
    explanations = tuple(
        Explanation(code=f.code, where=f.where, stack=cell.cell.stack) for f in findings
    )
    return cell.model_copy(update={"findings": findings, "explained_by": explanations})


def ended(report):
    """Return a report with the exit code that its cells and entries have, and with built stacks only."""
    stacks = tuple(stack for stack in report.stacks if not stack.failure)
    code, reasons = exit_code(report.cells, (), stacks)
    update = {"exit_code": code, "reasons": reasons, "stacks": stacks, "expected": ()}
    return report.model_copy(update=update)


def with_rows(*rows, **fields):
    """Return the sample report with these rows."""
    return sample_report().model_copy(update={"rows": rows} | fields)


def only_rows(*models):
    """Return the sample report with the rows of these models."""
    return with_rows(*(row for row in sample_report().rows if row.model in models))


def with_cells(row, *cells, **fields):
    """Return a row with these cells."""
    return row.model_copy(update={"cells": cells} | fields)


def each_cell(row, **fields):
    """Return a row whose cells have these fields."""
    return with_cells(row, *(cell.model_copy(update=fields) for cell in row.cells))


def renamed(row, **names):
    """Return a row under the name of another model or variant."""
    ids = (cell.cell.model_copy(update=names) for cell in row.cells)
    cells = (c.model_copy(update={"cell": id}) for c, id in zip(row.cells, ids, strict=True))
    return with_cells(row, *cells, **{key: str(name) for key, name in names.items()})


def sample_report(text: str = "", message: str = "", token: str = "") -> Report:
    """Return the report; the arguments go wherever names, messages and tokens stand."""
    rows = (
        *(same_everywhere("llama", dtype) for dtype in ("float32", "bfloat16")),
        late_model("qwen3", "float32"),
        changed_kernel(f"gemma2{text}", token, text),
        non_monotone("opensci-ref", message),
        failing("falcon", message),
        known("mamba", text),
        gone("bert"),
        padded("whisper", message),
        delta_net("qwen3_next", "float32", text, message),
        delta_net("qwen3_next", "bfloat16", text, message),
        unfinished("large", message),
        unfed("esmfold", text),
        raises_everywhere("t5-bare", message),
        raises_and_diverges("t5-deep", token, message),
        never_loads("vanished", message),
    )
    cells = [cell for row in rows for cell in row.cells]
    compared = [cell.verdict for cell in cells if cell.verdict != Verdict.REFERENCE]
    return Report(
        samebits="0.1.0",
        matrix="matrix.yaml",
        matrix_digest="3f" * 32,
        started="2026-11-20T10:00:00Z",
        seconds=754.2,
        command=f"nox -s matrix{text}",
        reference="4.48",
        stacks=stacks(message),
        checkpoints=(
            CheckpointReport(
                model="llama",
                source="llama, seed 0, made in 4.48",
                digest="ab" * 32,
                parameters=106_816,
            ),
            CheckpointReport(
                model="opensci-ref", source=f"path models/opensci-ref{text}", digest="cd" * 32
            ),
        ),
        rows=rows,
        expected=(
            ExpectedReport(
                line=88,
                text=f"mamba */* @5.* logits{text}",
                reason=f"the scan was rewritten{message}",
                reference="https://github.com/huggingface/transformers/pull/45513",
                title=f"mamba's scan{text}",
                explanation=f"The scan is a sum in another order; float64 agrees.{message}",
                cells=tuple(f"mamba/float32-eager@{stack}" for stack in STACKS[2:]),
            ),
            ExpectedReport(
                line=93, text="bert * @5.* *", reason="new mask", cells=(), fixed=("bert",)
            ),
            ExpectedReport(line=97, text="gpt2 * @5.* *", reason="not run here", evaluated=False),
        ),
        machine=MachineReport(
            platform="Linux-6.1-x86_64",
            cpu=f"AMD EPYC{text}",
            cpu_capability="AVX512",
            cores=2,
            threads=1,
            flags={"deterministic algorithms": "on", "default dtype": "float32"},
            environment={"OMP_NUM_THREADS": "1", "ATEN_CPU_CAPABILITY": f"avx512{text}"},
        ),
        counts={verdict: compared.count(verdict) for verdict in Verdict if verdict in compared},
        exit_code=1,
        reasons=(
            "3 new differences: gemma2/float32-sdpa@5.0, @5.9, @5.23",
            f"2 cells failed{message}",
            "stack 5.15 could not be built",
        ),
    )


def stacks(message: str = "") -> tuple[StackReport, ...]:
    torch = {"4.48": "2.13.0", "4.57": "2.13.0"}
    built = tuple(
        StackReport(
            id=id,
            transformers=f"{id}.0",
            torch=torch.get(id, "2.13.0"),
            python="3.11.7",
            packages={
                "torch": "2.13.0",
                "transformers": f"{id}.0",
                "numpy": "2.3.1",
                "tokenizers": "0.21.4" if id < "5" else "0.23.1",
                **({"typer": "0.20.0"} if id >= "5" else {}),
            },
            lock=f"locks/{id}.txt",
            lock_digest="0123456789abcdef" * 4,
        )
        for id in STACKS
    )
    failure = f"No solution found when resolving:\n  transformers==5.15 needs python>=3.12{message}"
    return (*built, StackReport(id="5.15", failure=failure))


def ref(seed: str, *shape: int, dtype: str = "float32") -> TensorRef:
    return TensorRef(hash=(seed * 64)[:64], dtype=dtype, shape=shape)


def cell(model: str, variant: Variant, stack: str, verdict: Verdict, **fields) -> CellResult:
    name = CellId(model=model, variant=variant, stack=stack)
    reference = CellId(model=model, variant=variant, stack="4.48")
    return CellResult(
        cell=name,
        reference=None if verdict == Verdict.REFERENCE else fields.pop("reference", reference),
        verdict=verdict,
        judged=fields.pop("judged", verdict),
        figure=fields.pop("figure", ""),
        headline=fields.pop("headline", ""),
        reproduce=f"nox -s matrix -- --cell {name}",
        **fields,
    )


def plain_cells(model: str, variant: Variant, stacks: tuple[str, ...], **fields):
    """Return stack -> cell: 4.48 is the reference, and the others have its bits."""
    verdicts = {s: Verdict.REFERENCE if s == "4.48" else Verdict.IDENTICAL for s in stacks}
    return {s: cell(model, variant, s, verdict, **fields) for s, verdict in verdicts.items()}


def row(model: str, variant: Variant, verdicts: dict[str, CellResult], **fields) -> Row:
    reference = next((s for s, c in verdicts.items() if c.verdict == Verdict.REFERENCE), None)
    if "attention" in fields:
        fields["attention"], fields["calls"] = trim.attention(fields["attention"])
    return Row(
        model=model,
        variant=str(variant),
        reference=reference,
        cells=tuple(verdicts.values()),
        **fields,
    )


def compared(*differing: SignalComparison) -> tuple[SignalComparison, ...]:
    """Every signal in order, identical but for those given."""
    given = {signal.signal: signal for signal in differing}
    return tuple(
        given.get(name, SignalComparison(signal=name, outcome="identical", n_items=4, n_differ=0))
        for name in signal_names()
        if name not in EXPLANATORY
    )


def differing(
    signal: str, *items: ItemComparison, n: tuple[int, int], **fields
) -> SignalComparison:
    """Return a signal that differs; ``n``: its items, and those of them that differ."""
    return SignalComparison(
        signal=signal, outcome="differs", n_items=n[0], n_differ=n[1], items=items, **fields
    )


def excused(signal: str, note: str) -> SignalComparison:
    """Return a signal that could not be compared for a reason."""
    return SignalComparison(
        signal=signal, outcome="not compared", n_items=0, n_differ=0, note=note, excused=True
    )


def metrics(max_abs: float, **fields) -> Metrics:
    values = {
        "n": 4096,
        "n_differ": 1234,
        "max_abs": max_abs,
        "mean_abs": max_abs / 14,
        "max_rel": max_abs * 3,
        "max_ulp": round(max_abs * 2**23),
        "cosine": 0.999999,
    }
    return Metrics(**(values | fields))


def same_everywhere(model: str, dtype: str) -> Row:
    variant = Variant(dtype=dtype, attention="sdpa")
    moved = {"config": (FactChange(what="rope_theta", reference=10000.0, candidate=None),)}
    cells = plain_cells(model, variant, STACKS[:2], signals=compared())
    cells |= plain_cells(model, variant, STACKS[2:], signals=compared(), changes=moved)
    kernels = {stack: attention(gqa=False) for stack in STACKS}
    return row(model, variant, cells, group="Decoders", attention=kernels)


def attention(
    gqa: bool, layers: int = 4, kernel: str = "aten::_scaled_dot_product_flash_attention_for_cpu"
) -> AttentionSignal:
    call = AttentionCall(
        module="",
        module_class="Attention",
        function="transformers.integrations.sdpa_attention.sdpa_attention_forward",
        source="integrations/sdpa_attention.py:40",
        sdpa=SdpaCall(
            enable_gqa=gqa,
            is_causal=True,
            mask=None,
            scale=0.25,
            query="float32[1, 4, 9, 16]",
            key="float32[1, 4, 9, 16]",
            value="float32[1, 4, 9, 16]",
        ),
        aten=(kernel,),
    )
    names = [f"model.layers.{i}.self_attn" for i in range(layers)]
    calls = tuple(call.model_copy(update={"module": name}) for name in names)
    return AttentionSignal(requested="sdpa", resolved="sdpa", calls={"short": calls, "long": calls})


def late_model(model: str, dtype: str) -> Row:
    variant = Variant(dtype=dtype, attention="sdpa")
    why = "transformers 4.48.0 does not know model_type 'qwen3'"
    reference = CellId(model=model, variant=variant, stack="4.57")
    cells = {
        "4.48": cell(
            model, variant, "4.48", Verdict.ABSENT, absent=why, headline=why, reference=None
        ),
        "4.57": cell(model, variant, "4.57", Verdict.REFERENCE),
    }
    cells |= plain_cells(model, variant, STACKS[2:], reference=reference)
    return row(model, variant, cells, group="Decoders")


FIRST = "hidden_states: layer 2 (model.layers.1) of prompt short is the first that differs: 2.0e-03"
LAYERS = ("model.embed_tokens", *(f"model.layers.{i}" for i in range(4)))


def layer_items(prompt: str, sizes: tuple[float, ...]) -> tuple[ItemComparison, ...]:
    return tuple(
        ItemComparison(
            subject=Subject(prompt=prompt, layer=i, tensor=LAYERS[i]),
            outcome="differs" if size else "identical",
            metrics=metrics(size, by_position=(0.0, size / 3, size)) if size else None,
        )
        for i, size in enumerate(sizes)
    )


def choices(token: str) -> Choices:
    """Two tokens that change places."""
    first = LikelyToken(id=6927, logit=12.5, text=f"oles{token}")
    second = LikelyToken(id=16697, logit=12.25)
    return Choices(index=(0, 8), reference=(first, second), candidate=(second, first))


def logits_item(token: str) -> ItemComparison:
    tokens = ["6927 'oles'", "28100 'ois'", f"124639 {token}" if token else "124639 '|'", "16697"]
    top = tuple(
        Extreme(
            index=(0, 8, int(name.split()[0])),
            reference=-6.34375,
            candidate=-6.34375 + 0.125 / (i + 1),
            token=name,
        )
        for i, name in enumerate(tokens)
    )
    return ItemComparison(
        subject=Subject(prompt="short"),
        outcome="differs",
        reference=ref("a", 1, 9, 152_064),
        candidate=ref("b", 1, 9, 152_064),
        metrics=metrics(
            0.125,
            top=top,
            n_argmax=2,
            n_positions=9,
            kl_max=3.1e-3,
            kl_mean=4.4e-4,
            n_nan=(0, 3),
            choices=choices(token),
            by_position=(0.0, 0.5, 0.125),
        ),
        pad_rows="differ",
        pad_metrics=metrics(0.09),
    )


def decode_item(token: str) -> ItemComparison:
    top = (
        Extreme(index=(1, 6927), reference=12.25, candidate=12.2421875, token="6927"),
        Extreme(index=(1, 28100), reference=12.249999, candidate=12.25, token=token or "28100"),
    )
    return ItemComparison(
        subject=Subject(prompt="short"),
        outcome="differs",
        reference=ref("c", 8, 152_064),
        candidate=ref("d", 8, 152_064),
        metrics=metrics(
            0.0078125, top=top, n_argmax=1, n_positions=2, kl_max=2.5e-5, kl_mean=1.25e-5
        ),
        note="up to step 1, where the tokens differ",
    )


def changed_kernel(model: str, token: str, text: str) -> Row:
    variant = Variant(dtype="float32", attention="sdpa")
    at = partial(cell, model, variant)
    layers = layer_items("short", (0, 0, 1.953125e-03, 3.90625e-03, 0.25))
    tokens = ItemComparison(
        subject=Subject(prompt="short"), outcome="differs", note="ids differ at step 1"
    )
    signals = compared(
        differing("hidden_states", *layers, *layer_items("long", (0, 0, 0, 0, 0)), n=(10, 3)),
        differing("logits", logits_item(token), n=(2, 1)),
        differing("decode", decode_item(token), n=(2, 1)),
        differing("greedy", tokens, n=(1, 1)),
    )
    changes = {
        "config": (
            FactChange(what="_attn_implementation_autoset", reference=True, candidate=None),
            FactChange(what=f"final_logit_softcapping{text}", reference=30.0, candidate=None),
        ),
        "attention.kernel": (
            FactChange(
                what=f"short · model.layers.*.self_attn · enable_gqa{text}",
                prompt="short",
                module="model.layers.*.self_attn",
                reference=False,
                candidate=True,
            ),
        ),
    }
    common = {
        "figure": "logits 1.2e-01",
        "signals": signals,
        "changes": changes,
        "first": Difference(
            signal="hidden_states",
            item="short · layer 2 (model.layers.1)",
            what=FIRST + text,
        ),
        "splits": (
            TokenSplit(
                prompt=f"short{text}",
                step=1,
                reference=((6927, 12.25), (28100, 12.249999)),
                candidate=((28100, 12.25), (6927, 12.2421875)),
            ),
            TokenSplit(prompt="long", step=0, reference=None, candidate=None),
        ),
    }
    unread = ItemComparison(
        subject=Subject(prompt="short", layer=2), outcome="not compared", note="no values"
    )
    rounded = differing("hidden_states", *layer_items("short", (0, 7.9e-07)), unread, n=(1, 1))
    cells = {
        "4.48": at("4.48", Verdict.REFERENCE),
        "4.57": at("4.57", Verdict.IDENTICAL, signals=compared()),
        "5.0": at("5.0", Verdict.UNDECIDED, headline=FIRST + text, **common),
        "5.9": at(
            "5.9",
            Verdict.UNDECIDED,
            headline=FIRST + text,
            notes=(f"watching the forward changed its bits{text}",),
            skips=(Skip(what="weights", reason=f"too large{text}"),),
            **{**common, "changes": {**changes, "config": changes["config"][:1]}},
        ),
        "5.23": at(
            "5.23",
            Verdict.ROUNDING,
            figure="logits 7.9e-07",
            headline="the difference goes away in float64",
            signals=compared(rounded),
        ),
    }
    kernels = {stack: attention(gqa=stack >= "5") for stack in STACKS}
    return row(model, variant, cells, group="Decoders", attention=kernels)


def weight_items(n: int) -> tuple[ItemComparison, ...]:
    return tuple(
        ItemComparison(
            subject=Subject(tensor=f"model.layers.{i}.mlp.gate_up_proj"),
            outcome="differs",
            reference=ref("1", 64, 64),
            candidate=ref("2", 64, 64),
            note="values are not in the store",
        )
        for i in range(n)
    )


def non_monotone(model: str, message: str) -> Row:
    variant = Variant(dtype="float32", attention="sdpa")
    at = partial(cell, model, variant)
    frequencies = ItemComparison(
        subject=Subject(tensor="model.rotary_emb.inv_freq"),
        outcome="differs",
        reference=ref("a", 32),
        candidate=ref("b", 16, dtype="bfloat16"),
    )
    original = ItemComparison(
        subject=Subject(tensor="model.rotary_emb.original_inv_freq"), outcome="only here"
    )
    wrong = compared(
        differing("weights", *weight_items(20), n=(30, 20)),
        differing("inv_freq", frequencies, original, n=(1, 1)),
    )
    messages = tuple(
        FactChange(what=f"message {i}", reference=None, candidate=message or "x") for i in range(20)
    )
    cells = {
        "4.48": at("4.48", Verdict.REFERENCE),
        "4.57": at("4.57", Verdict.IDENTICAL, signals=compared()),
        "5.0": at(
            "5.0",
            Verdict.UNSTABLE,
            figure="weights",
            headline=f"two loads give other bits{message}",
            unstable=(
                "weights: model.layers.0.mlp.up_proj",
                f"inv_freq: model.rotary_emb{message}",
            ),
        ),
        "5.9": at("5.9", Verdict.IDENTICAL, signals=compared()),
        "5.23": at(
            "5.23",
            Verdict.DIVERGED,
            figure="inv_freq 1.0e+00",
            headline="inv_freq is not what the config says",
            signals=wrong,
            changes={"load": messages},
        ),
    }
    return row(model, variant, cells, group="Custom code")


def failing(model: str, message: str) -> Row:
    variant = Variant(dtype="float32", attention="eager")

    def failure(line: int) -> Failure:
        return Failure(
            phase="forward short",
            type="AttributeError",
            message=f"'DynamicCache' object has no attribute 'key_cache'{message}",
            traceback=f'Traceback (most recent call last):\n  File "x.py", line {line}\nAttributeError{message}',
            frames=(
                Frame(
                    file="models/falcon/modeling_falcon.py",
                    line=line,
                    function="forward",
                    code=f"y = self.h(x){message}",
                ),
                Frame(file="cache_utils.py", line=1 + line, function="__getattr__"),
            ),
        )

    cells = plain_cells(model, variant, STACKS[:3])
    for line, stack in ((10, "5.9"), (20, "5.23")):
        cells[stack] = cell(
            model,
            variant,
            stack,
            Verdict.FAILED,
            figure="forward short",
            headline="failed in forward short",
            failure=failure(line),
        )
    return row(model, variant, cells, group="Decoders")


def known(model: str, text: str) -> Row:
    variant = Variant(dtype="float32", attention="eager")
    signals = compared(differing("logits", n=(2, 1), note=f"prompt long{text}"))
    cells = plain_cells(model, variant, STACKS[:2])
    for stack in STACKS[2:]:
        cells[stack] = cell(
            model,
            variant,
            stack,
            Verdict.EXPECTED,
            judged=Verdict.UNDECIDED,
            figure="logits 3.0e-06",
            headline=f"logits differ on {stack}",
            signals=signals,
            expected=("the scan was rewritten",),
        )
    reason = f"it has no cache of keys and values{text}"
    left = RelationsSignal(
        relations=(holding("causality"), holding("batch size")),
        inapplicable=(
            Inapplicable(relation="cache contents", reason=reason),
            Inapplicable(relation="prefix cache reused", reason=reason),
        ),
        seconds=0.5,
    )
    return row(
        model,
        variant,
        cells,
        group="State space",
        answers={"relations": RelationsOfRow(stacks=dict.fromkeys(STACKS, left))},
    )


def gone(model: str) -> Row:
    variant = Variant(dtype="float32", attention="sdpa")
    cells = {"4.48": cell(model, variant, "4.48", Verdict.REFERENCE)}
    cells["5.23"] = cell(
        model,
        variant,
        "5.23",
        Verdict.FIXED,
        judged=Verdict.IDENTICAL,
        headline="the expected difference is gone: remove line 93 of matrix.yaml",
        signals=compared(),
        expected=("new mask",),
    )
    return row(model, variant, cells)


def padded(model: str, message: str) -> Row:
    variant = Variant(dtype="float16", attention="eager")
    skips = (Skip(what="greedy", reason=f"no generation head{message}"),)
    notes = ("padding rows of logits differ by up to 9.0e-02",)
    cells = plain_cells(model, variant, STACKS[:1], skips=skips)
    cells |= plain_cells(model, variant, STACKS[1:], skips=skips, notes=notes)
    return row(model, variant, cells, group="Speech")


def delta_net(model: str, dtype: str, text: str, message: str) -> Row:
    """A model whose bits are the same everywhere, and which is wrong on two stacks all along."""
    variant = Variant(dtype=dtype, attention="sdpa")
    reference = CellId(model=model, variant=variant, stack="4.57")
    cells = {"4.57": cell(model, variant, "4.57", Verdict.REFERENCE)}
    cells |= plain_cells(model, variant, STACKS[2:], reference=reference)
    wrong = relations_of_delta_net(dtype, text, message, wrong=True)
    right = relations_of_delta_net(dtype, text, message, wrong=False)
    stacks = {"4.57": wrong, "5.0": wrong, "5.9": right, "5.23": right}
    return row(
        model,
        variant,
        cells,
        group="Gated delta net",
        answers={"relations": RelationsOfRow(stacks=stacks)},
    )


def raised(phase: str, type: str, message: str) -> Failure:
    return Failure(phase=phase, type=type, message=message, traceback=f"{type}: {message}")


def unfinished(model: str, message: str) -> Row:
    """A model whose runs end early on two stacks; on one of them what was compared diverged."""
    variant = Variant(dtype="float32", attention="sdpa")
    at = partial(cell, model, variant)

    def ended(stack: str, rest: Verdict, **fields) -> CellResult:
        how = Unfinished(
            phase="greedy long", reason=f"no progress for 120 s{message}", step="forward 3 of 12"
        )
        headline = f"not finished: {how.reason} in phase {how.phase} ({how.step})"
        more = {"rest": rest, "unfinished": how, "headline": headline}
        return at(stack, Verdict.NOT_FINISHED, **more, **fields)

    left_out = excused("greedy", "not observed here: the run ended before")
    logits = differing("logits", logits_item(""), n=(2, 1))
    late = f"run a did not finish, but only after everything that the verdict needs{message}"
    what = "logits: prompt short: 1 of 4,096 elements, max abs 0.5"
    cells = {
        "4.48": at("4.48", Verdict.REFERENCE),
        "4.57": ended("4.57", Verdict.IDENTICAL, signals=compared(left_out)),
        "5.0": ended(
            "5.0",
            Verdict.DIVERGED,
            figure="logits 5.0e-01",
            signals=compared(left_out, logits),
            first=Difference(signal="logits", item="short", what=what),
        ),
        "5.9": at("5.9", Verdict.IDENTICAL, signals=compared()),
        "5.23": at("5.23", Verdict.IDENTICAL, signals=compared(), notes=(late,)),
    }
    return row(model, variant, cells, group="Decoders")


def unfed(model: str, text: str) -> Row:
    """A model that no forward could be fed."""
    variant = Variant(dtype="float32", attention="eager")
    why = f"its forward takes protein_embeddings, which samebits cannot make{text}"
    signals = tuple(
        found
        if found.signal in ("weights", "buffers")
        else excused(found.signal, f"not observed on either side: {why}")
        for found in compared()
    )
    cells = {
        stack: cell(
            model,
            variant,
            stack,
            Verdict.NOT_OBSERVED,
            rest=Verdict.IDENTICAL,
            headline=f"weights and buffers identical; no forward: {why}",
            signals=signals,
            skips=(Skip(what="forward", reason=why, why="inputs"),),
        )
        for stack in STACKS[1:]
    }
    cells = {"4.48": cell(model, variant, "4.48", Verdict.REFERENCE), **cells}
    return row(model, variant, cells, group="Proteins")


def raises_everywhere(model: str, message: str) -> Row:
    """A checkpoint that generate() refuses in every release, and whose forward is the same."""
    variant = Variant(dtype="float32", attention="eager")
    failure = raised("greedy short", "ValueError", f"decoder_start_token_id has to be set{message}")
    said = f"greedy short: ValueError: {failure.message}"
    left_out = excused("greedy", f"raises the same exception in the reference: {said}")
    shared = {"shared_failures": (failure.model_copy(update={"traceback": ""}),)}
    first = cell(
        model,
        variant,
        "4.48",
        Verdict.FAILED,
        rest=Verdict.REFERENCE,
        reference=None,
        headline=f"fails in the same way in every release: {said}",
        failure=failure,
        **shared,
    )
    cells = plain_cells(model, variant, STACKS[1:], signals=compared(left_out), **shared)
    found = row(model, variant, {"4.48": first, **cells}, group="Sequence to sequence")
    return found.model_copy(update={"reference": "4.48"})


def raises_and_diverges(model: str, token: str, message: str) -> Row:
    """A model of which one phase raises on one stack, and whose forward diverges there, too."""
    variant = Variant(dtype="float32", attention="eager")
    what = "logits: prompt short: 1,234 of 4,096 elements, max abs 0.125 (1,048,576 ULP)"
    signals = compared(
        differing("logits", logits_item(token), n=(2, 1)),
        excused("greedy", "not observed here: phase greedy short raised IndexError"),
    )
    cells = plain_cells(model, variant, STACKS[1:], signals=compared())
    cells["5.9"] = cell(
        model,
        variant,
        "5.9",
        Verdict.FAILED,
        rest=Verdict.DIVERGED,
        figure="logits 1.2e-01",
        headline=f"failed in phase greedy short: IndexError: list index out of range{message}",
        failure=raised("greedy short", "IndexError", f"list index out of range{message}"),
        signals=signals,
        first=Difference(signal="logits", item="short", what=what),
    )
    cells = {"4.48": cell(model, variant, "4.48", Verdict.REFERENCE), **cells}
    return row(model, variant, cells, group="Sequence to sequence")


def never_loads(model: str, message: str) -> Row:
    """A model that fails to load in the same way in every stack."""
    variant = Variant(dtype="float32", attention="eager")
    failure = raised("load", "ImportError", f"cannot import name 'gone'{message}")
    cells = {
        stack: cell(
            model,
            variant,
            stack,
            Verdict.FAILED,
            reference=None,
            headline=f"failed in phase load: ImportError: {failure.message}",
            failure=failure,
        )
        for stack in STACKS
    }
    return row(model, variant, cells, group="Custom code")


def relations_of_delta_net(dtype: str, text: str, message: str, *, wrong: bool) -> RelationsSignal:
    unit = 2.0**-24 if dtype == "float32" else 2.0**-8
    verify = relation(
        "multi-token verify = single-token decode",
        f"cache of 24 tokens, 16 at once{text}",
        3.4 if wrong else 8 * unit,
        promoted=3.4 if wrong else 1.6e-15,
        argmax=1 if wrong else 0,
        positions=(3.4 if wrong else 8 * unit,),
        tried=16,
    )
    names = ("layer 0 conv_state", "layer 0 recurrent_state", f"layer 3 keys{text}")
    cache = tuple(
        CacheTensor(name=name, shape=(1, 2, 23, 16), distance=distance(size, n=35_328))
        for name, size in zip(names, (2.0 if wrong else 0.0, unit, 0.0), strict=True)
    )
    return RelationsSignal(
        relations=(
            decoding(dtype, text, unit),
            relation("prefill split anywhere", "3 tokens, split at 1", 0.5, promoted=0.5, tried=9)
            if wrong
            else holding("prefill split anywhere", tried=9),
            verify,
            Relation(
                relation="cache contents",
                case="23 tokens, split at 11",
                holds=False,
                distance=distance(2.0 if wrong else unit, n=3 * 35_328),
                promoted=distance(2.0 if wrong else 1e-15, n=3 * 35_328),
                cache=cache,
            ),
            greedy(dtype, text),
            relation("left padding", f"33 tokens, 1 of padding{text}", unit, promoted=None),
            holding("batch position"),
            holding("causality"),
        ),
        inapplicable=(
            Inapplicable(
                relation="position ids left out", reason=f"it takes no position ids{message}"
            ),
            Inapplicable(relation="causality", reason=f"2 tokens: ValueError{message}"),
        ),
        precision=precisions(dtype),
        averages=sample_averages(dtype, text, unit),
        no_float64=f"RuntimeError: no kernel for float64{message}" if dtype == "bfloat16" else None,
        seconds=2.4,
    )


def distance(size: float, n: int = 151_936, argmax: int | None = None) -> Distance:
    """As large as that, in one of eight elements."""
    return Distance(
        n=n,
        n_differ=n // 8 if size else 0,
        max_abs=size,
        mean_abs=size / 100,
        argmax_changes=argmax,
    )


def relation(
    name: str, case: str, size: float, *, promoted: float | None, argmax: int = 0, **fields
) -> Relation:
    return Relation(
        relation=name,
        case=case,
        holds=False,
        distance=distance(size, argmax=argmax),
        promoted=None if promoted is None else distance(promoted),
        **fields,
    )


def holding(name: str, tried: int = 1) -> Relation:
    return Relation(
        relation=name, case="33 tokens", holds=True, distance=distance(0.0, argmax=0), tried=tried
    )


def decoding(dtype: str, text: str, unit: float) -> Relation:
    sizes = (0.0, unit, 2 * unit, 4 * unit)
    return relation(
        "full forward = prefill + decode",
        f"40 tokens, split at 39{text}",
        13 * unit,
        promoted=1.6e-15,
        layers=tuple(
            LayerDistance(name=f"layer {i}{text}", distance=distance(size, n=64))
            for i, size in enumerate(sizes)
        ),
        positions=(0.0, 0.0, unit, 2 * unit, 13 * unit),
        top=tuple(
            TopDifference(position=39, token=token, one=-6.34375, other=-6.34375 + 13 * unit / i)
            for i, token in enumerate((6927, 28_100, 124_639), start=1)
        ),
    )


def greedy(dtype: str, text: str) -> Relation:
    if dtype == "float32":
        return holding("greedy by hand = generate()")
    split = GreedySplit(step=2, margin=1.2e-3, one=(5, 7, 11, 13), other=(5, 7, 12, 13))
    return Relation(
        relation="greedy by hand = generate()",
        case=f"12 tokens, 4 generated{text}",
        holds=False,
        split=split,
    )


def precisions(dtype: str) -> tuple[Precision, ...]:
    bits = 23 if dtype == "float32" else 7
    return (
        Precision(what="parameters", dtype=dtype, mantissa_bits=bits, used_bits=bits),
        Precision(what="logits", dtype=dtype, mantissa_bits=bits, used_bits=7),
    )


def sample_averages(dtype: str, text: str, unit: float) -> SampleAverages:
    layers = {f"layer {i}{text}": unit * i for i in range(4)}
    return SampleAverages(samples=1000, dtype=dtype, layers=layers | {"logits": 2.5 * unit})
