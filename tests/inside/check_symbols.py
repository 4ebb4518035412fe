"""process.symbols: a name that an exception speaks of is looked up in the stack it came from."""

import transformers
from raising import raised
from samebits_probe.process import symbols
from samebits_probe.process.failure import describe
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

NEW = int(transformers.__version__.split(".")[0]) >= 5


def symbol(function):
    (lookup,) = symbols.symbols(raised(Exception, function))
    return lookup


def moved():
    from transformers.modeling_utils import DynamicCache  # noqa: F401


def no_module():
    import transformers.models.dynamic_cache_utils  # noqa: F401


def no_name():
    from transformers.utils import is_torch_availabel  # noqa: F401


def test_a_name_that_lives_elsewhere_is_found_there():
    lookup = symbol(moved)
    assert (lookup["name"], lookup["owner"]) == (
        "DynamicCache",
        "transformers.modeling_utils",
    )
    assert lookup["elsewhere"][0] == "transformers.cache_utils"
    assert lookup["found"] is False


def test_a_name_that_is_spelled_alike_is_named():
    lookup = symbol(no_name)
    assert lookup["elsewhere"] == []
    assert lookup["similar"][0] == "is_torch_available"


def test_a_module_that_is_not_there():
    lookup = symbol(no_module)
    assert (lookup["name"], lookup["owner"]) == ("dynamic_cache_utils", "transformers.models")


def test_an_attribute_of_an_object_and_where_it_is_now():
    config = transformers.LlamaConfig(vocab_size=32)
    lookup = symbol(lambda: config.vocab_sise)
    assert lookup["owner"] == "transformers.models.llama.configuration_llama.LlamaConfig"
    assert "vocab_size" in lookup["similar"]
    if NEW:
        where = symbol(lambda: config.rope_theta)["elsewhere"][0]
        assert where.endswith("LlamaConfig.rope_parameters['rope_theta']")


def test_a_method_that_moved_to_another_class():
    lookup = symbol(lambda: transformers.LlamaConfig(vocab_size=32).generate)
    assert "transformers.generation.utils.GenerationMixin.generate" in lookup["elsewhere"]


def test_a_key_of_a_table_with_the_table_s_own_keys():
    lookup = symbol(lambda: ROPE_INIT_FUNCTIONS["yarm"])
    assert lookup["name"] == "yarm"
    assert lookup["owner"] == "transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS"
    assert lookup["similar"] == ["yarn"]


def test_a_keyword_with_the_function_s_own_parameters():
    from transformers.models.llama.modeling_llama import rotate_half

    lookup = symbol(lambda: rotate_half(xs=1))
    assert (lookup["name"], lookup["similar"]) == ("xs", ["x"])
    assert lookup["owner"] == "transformers.models.llama.modeling_llama.rotate_half()"


def test_a_cause_behind_an_exception_is_looked_up_too():
    def wrapped():
        try:
            moved()
        except ImportError as error:
            raise RuntimeError from error

    assert symbol(wrapped)["name"] == "DynamicCache"


def test_what_speaks_of_no_name_has_no_symbols():
    assert symbols.symbols(raised(Exception, lambda: 1 / 0)) == []
    assert symbols.symbols(raised(Exception, lambda: {}["x"])) == []
    assert symbols.symbols(raised(Exception, lambda: int("x"))) == []


def test_a_described_failure_carries_its_symbols_and_survives_one_that_cannot_be_read():
    assert describe("load", raised(Exception, moved))["symbols"][0]["name"] == "DynamicCache"

    class UnreadableError(AttributeError):
        def __str__(self):
            return "'X' object has no attribute 'y'"

        obj = property(lambda self: 1 / 0)

    assert describe("load", UnreadableError())["symbols"] == []


def _wrapped(words):
    def validate():
        return set() - [1]

    def load():
        try:
            validate()
        except TypeError as error:
            msg = words.format(error)
            raise ValueError(msg) from error

    return describe("config", raised(ValueError, load))


def test_the_line_of_a_cause_is_the_last_one_where_the_exception_repeats_its_words():
    wrapped = _wrapped("validator 'x': TypeError: {}")
    assert wrapped["frames"][-1]["function"] == "validate"
    assert "in validate" in wrapped["traceback"]
    assert _wrapped("the file is not there")["frames"][-1]["function"] == "load"
