"""What ``pipeline(task, model=folder)`` answers: texts, labels, boxes and scores of small made inputs."""

from __future__ import annotations

from samebits.questions.pipelines.compare import report
from samebits.questions.pipelines.records import PIPELINES
from samebits.questions.pipelines.rules import RULES
from samebits.questions.pipelines.section import of_model, of_run, pipelines_differ
from samebits.questions.question import ModelSection, Question, Section, in_first_variant

QUESTION = Question(
    key=PIPELINES,
    options=in_first_variant,
    of_captures=PIPELINES.kept(report),
    rules=RULES,
    sections=(Section("findings.md", 52, of_run),),
    of_model=(ModelSection(102, of_model),),
    has_details=lambda rows, _: pipelines_differ(rows),
)
