"""What a call raises: a stack has no pytest."""


def raised(kind, function, *arguments, **options):
    """Return the exception of a kind that a call raises."""
    try:
        function(*arguments, **options)
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")
