"""docs/watch.md is that of its results, and each cause in it was judged by hand."""

import yaml

from bench.watch import page


def test_the_page_is_that_of_the_results_and_each_cause_was_read():
    judged = yaml.safe_load(page.JUDGED.read_text("utf-8"))
    results = page.read()
    assert page.PAGE.read_text("utf-8") == page.page(results, judged)
    for cause in results["causes"]:
        assert judged[cause["id"]]["verdict"] in {"true", "false"}
        assert judged[cause["id"]]["why"]
