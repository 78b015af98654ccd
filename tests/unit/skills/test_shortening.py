import pytest

from services.skills.domain.shortening import Shortened, shorten

RULES = """\
State the frame. Ties count as one, e.g. rows of one day.

```sql
SELECT sum(x) OVER (ORDER BY day) -- one. two.
```

- ROWS counts rows. `count ... of. all` is code.
- RANGE counts time.
"""


def texts_of(text: str, *, keep_code: bool = True) -> list[str]:
    """Every form that `text` takes as there is less and less room."""
    forms = [shorten(text, limit, keep_code=keep_code) for limit in range(len(text), -1, -1)]
    return list(dict.fromkeys(form.text for form in forms if form is not None))


def test_a_text_that_fits_stays_as_it_is() -> None:
    assert shorten(RULES, len(RULES)) == Shortened(RULES, False)


def test_a_text_ends_at_a_sentence_a_list_item_or_behind_a_block_of_code() -> None:
    code = RULES[: RULES.index("- ROWS")].rstrip()

    assert texts_of(RULES)[1:] == [
        code + "\n\n- ROWS counts rows. `count ... of. all` is code. …",
        code + "\n\n- ROWS counts rows. …",
        code + "\n\n…",
        "State the frame. Ties count as one, e.g. rows of one day. …",
        "State the frame. …",
    ]


def test_code_is_left_out_first_where_prose_says_more() -> None:
    assert texts_of(RULES, keep_code=False)[1:3] == [
        "State the frame. Ties count as one, e.g. rows of one day.\n\n"
        "- ROWS counts rows. `count ... of. all` is code.\n- RANGE counts time. …",
        "State the frame. Ties count as one, e.g. rows of one day.\n\n"
        "- ROWS counts rows. `count ... of. all` is code. …",
    ]


@pytest.mark.parametrize(
    ("text", "forms"),
    [
        ("Do this:\n\n- first\n- last", ["Do this:\n\n- first …"]),
        ("1. One\n2. Two", ["1. One …"]),
        ("Say.\n\n    a = 1\n\n    b = 2\n\nEnd.", ["Say.\n\n    a = 1\n\n    b = 2\n\n…", "Say. …"]),
        ("Say.\n\n~~~\na\n\nb. c", ["Say. …"]),
        ("- Say.\n\n  ```\n  a. b\n  ```\n  End.", ["- Say.\n\n  ```\n  a. b\n  ```\n\n…", "- Say. …"]),
        ("a\r\nb.\r\n\r\nc", ["a\r\nb. …"]),
        ("|a|b|\n|-|-|\n|1. 2|3|\n\nEnd.", ["|a|b|\n|-|-|\n|1. 2|3|\n\n…"]),
        ("# Title\n\nText.", []),
        ("no end of a sentence", []),
        ("```\nall of it is code\n```", []),
    ],
)
def test_nothing_is_cut_where_it_would_be_broken(text: str, forms: list[str]) -> None:
    assert texts_of(text) == [text, *forms]


def test_code_alone_is_left_out_where_code_is_not_kept() -> None:
    assert shorten("```\nall of it is code\n```", 10, keep_code=False) is None
