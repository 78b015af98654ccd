from hypothesis import given
from hypothesis import strategies as st

from services.ingest.domain.outbox import OutboxRow, published


def rows(keys: list[str]) -> list[OutboxRow]:
    return [OutboxRow(n, "t", key, {}, b"") for n, key in enumerate(keys)]


def test_acknowledged_rows_are_done() -> None:
    assert published(rows(["a", "b"]), [True, True]) == [0, 1]


def test_what_follows_a_failure_of_its_key_is_sent_again() -> None:
    assert published(rows(["a", "b", "a", "b"]), [False, True, True, True]) == [1, 3]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=20))
def test_what_is_sent_again_of_a_key_is_always_its_tail(outcome: list[tuple[str, bool]]) -> None:
    batch = rows([key for key, _ in outcome])
    done = set(published(batch, [ok for _, ok in outcome]))
    for key in "abc":
        flags = [row.id in done for row in batch if row.key == key]
        assert flags == sorted(flags, reverse=True)
    assert done <= {n for n, (_, ok) in enumerate(outcome) if ok}
