import pytest

from gateway.execution.docstrings import parse


def test_the_description_is_the_first_paragraph_on_one_line() -> None:
    assert parse("Import rows\n    into the set.\n\n    More.\n    ") == ("Import rows into the set.", {})


@pytest.mark.parametrize("nothing", [None, "", "\n   \n"])
def test_no_docstring_says_nothing(nothing: str | None) -> None:
    assert parse(nothing) == ("", {})


def test_an_args_section_describes_each_parameter() -> None:
    docstring = """Import rows.

    Args:
        rows: The rows,
            one a line: with colons.

        limit (int, optional): At most
            so many.
        call (Callable[[int], str]): Called.
        **extra: More.
        empty:
            Below.

    Returns:
        other: Not a parameter.
    """
    assert parse(docstring) == (
        "Import rows.",
        {
            "rows": "The rows, one a line: with colons.",
            "limit": "At most so many.",
            "call": "Called.",
            "extra": "More.",
            "empty": "Below.",
        },
    )


def test_an_args_section_may_follow_without_a_blank_line() -> None:
    assert parse("Add.\nArguments:\n  a: First.\n") == ("Add.", {"a": "First."})
    assert parse("\n    Args:\n        a: First.") == ("", {"a": "First."})


def test_text_in_an_args_section_that_describes_nothing_is_left_out() -> None:
    assert parse("Add.\n\nArgs:\n    just prose\n    a: First.") == ("Add.", {"a": "First."})
