"""findings.release: what is of a release is listed once for its stack."""

from samebits.findings.release import of_stacks
from samebits.records.finding import Finding
from tests.support.builders import cell_id, cell_result

OF_RELEASE = "SB904"


def seen(where, line, model="llama"):
    finding = Finding(code=OF_RELEASE, where=where, evidence=(line,))
    return cell_result(cell_id("5.24", model), findings=(finding,))


def test_every_place_of_the_first_model_is_in_the_evidence():
    """Two calls of one release may raise for two causes."""
    first = seen("keys", "15 positions")
    second = seen("values", "no positions")
    (listed,) = of_stacks([first, second, second])["5.24"]
    assert listed.where == "keys"
    assert listed.evidence == ("15 positions", "values: no positions")


def test_the_places_of_further_models_are_not():
    results = [seen("keys", "15 positions"), seen("values", "no positions", "gemma")]
    (listed,) = of_stacks(results)["5.24"]
    assert (listed.evidence, listed.models) == (("15 positions",), ("llama", "gemma"))
