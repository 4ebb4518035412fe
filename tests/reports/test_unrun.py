"""The sentence about modules that no prompt ran."""

import pytest

from samebits.records.capture import Skip, UnrunModule
from samebits.reports import document
from samebits.reports.html import site
from samebits.reports.sections.unrun import NO_VIDEO, in_words, media_line, unrun_line, unrun_of
from tests.support.sample_report import sample_report, with_cells, with_rows

TOWER = UnrunModule(name="model.vision_tower", parameters=1200)
EXPERTS = tuple(
    UnrunModule(name=f"layers.0.experts.{i}", parameters=9, one_of_several=True) for i in (3, 7)
)


def with_unrun(modules):
    report = sample_report()
    row = report.rows[0]
    unrun = dict.fromkeys(row.attention, modules) if modules else {}
    return with_rows(row.model_copy(update={"unrun": unrun}))


def test_modules_of_one_list_are_one_phrase():
    words = in_words((TOWER, *EXPERTS))
    assert words.startswith(
        "model.vision_tower (1,200 parameters), 2 modules of layers.0.experts (3, 7: "
    )


@pytest.mark.parametrize("modules", [(), (TOWER,)])
def test_a_report_names_them_only_if_there_are_some(modules):
    report = with_unrun(modules)
    assert ("model.vision_tower" in unrun_line(report)) == bool(modules)
    assert ("model.vision_tower" in unrun_of(report.rows, "default")) == bool(modules)
    assert bool(unrun_line(report)) == bool(modules)


def asked(prompt="short", skips=()):
    """Return the sample report whose last cell compared this prompt alone."""
    report = sample_report()
    row, cell = next(
        (row, cell)
        for row in report.rows
        for cell in row.cells
        if any(s.items for s in cell.signals)
    )
    signals = tuple(
        signal.model_copy(
            update={
                "items": tuple(
                    item.model_copy(
                        update={"subject": item.subject.model_copy(update={"prompt": prompt})}
                    )
                    for item in signal.items
                )
            }
        )
        for signal in cell.signals
    )
    cell = cell.model_copy(update={"signals": signals, "skips": skips})
    return with_rows(with_cells(row, cell))


@pytest.mark.parametrize(
    ("prompt", "what"), [("image", "an image."), ("video", "a video."), ("audio", "a sound.")]
)
def test_a_model_that_was_fed_an_image_says_what_had_none(prompt, what):
    assert media_line(asked(prompt)).endswith(f"Forward and decoding were also fed {what}")
    assert media_line(asked(prompt)) in unrun_of(asked(prompt).rows, "default")
    pages = site.folder(asked(prompt), document.render(asked(prompt)))
    assert any(
        media_line(asked(prompt)) in text for path, text in pages.items() if path.endswith(".html")
    )
    assert not media_line(asked())
    assert not media_line(asked(prompt).model_copy(update={"level": "quick"}))
    assert not unrun_of(asked().rows, "default")


def test_a_model_that_takes_a_video_says_that_none_was_fed():
    video = Skip(what="forward video", reason="forward takes videos", why="inputs")
    assert media_line(asked(skips=(video,))) == NO_VIDEO
    both = media_line(asked("image", skips=(video,)))
    assert both.startswith("Most relations")
    assert both.endswith(NO_VIDEO)
    assert NO_VIDEO not in media_line(asked("video", skips=(video,)))
    other = video.model_copy(update={"what": "forward image"})
    assert not media_line(asked(skips=(other,)))
