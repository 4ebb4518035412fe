"""The committed report of zoo.yaml, which is large: it is read once for all tests of a process."""

from functools import cache
from pathlib import Path

from samebits.reports import again

PATH = Path(__file__).parents[2] / "reports" / "zoo" / "report.json"


@cache
def zoo_report():
    return again.read(PATH).report
