from hypothesis import given
from hypothesis import strategies as st

from kbmesh.messaging.offsets import OffsetTracker


def tracker_of(*offsets: int) -> OffsetTracker:
    tracker = OffsetTracker()
    for offset in offsets:
        tracker.delivered(offset)
    return tracker


def test_nothing_can_be_committed_before_something_is_finished() -> None:
    assert tracker_of(7, 8).committable() is None


def test_the_offset_to_commit_is_the_next_one_to_read() -> None:
    tracker = tracker_of(7, 8)
    tracker.finished(7)
    assert tracker.committable() == 8


def test_an_unfinished_message_holds_back_those_behind_it() -> None:
    tracker = tracker_of(1, 2, 3)
    tracker.finished(3)
    tracker.finished(2)
    assert tracker.committable() is None
    tracker.finished(1)
    assert tracker.committable() == 4


def test_gaps_in_a_compacted_topic_do_not_hold_back() -> None:
    tracker = tracker_of(1, 5, 100)
    for offset in (1, 5, 100):
        tracker.finished(offset)
    assert tracker.committable() == 101


def test_an_offset_is_committed_only_once() -> None:
    tracker = tracker_of(1, 2)
    tracker.finished(1)
    tracker.committed(2)
    assert tracker.committable() is None
    tracker.finished(2)
    assert tracker.committable() == 3


def test_an_abandoned_message_is_no_longer_waited_for_but_never_passed() -> None:
    tracker = tracker_of(1, 2, 3)
    tracker.finished(1)
    tracker.finished(3)
    tracker.abandon()
    assert tracker.in_flight == 0
    assert tracker.committable() == 2


@given(
    gaps=st.lists(st.integers(1, 5), min_size=1, max_size=40),
    data=st.data(),
)
def test_no_order_of_completion_commits_past_an_unfinished_message(gaps: list[int], data: st.DataObject) -> None:
    offsets = [sum(gaps[: index + 1]) for index in range(len(gaps))]
    order = data.draw(st.permutations(offsets))
    abandoned = set(order[: data.draw(st.integers(0, len(order)))])
    upfront = data.draw(st.integers(0, len(offsets)))
    tracker = tracker_of(*offsets[:upfront])
    later = iter(offsets[upfront:])
    open_ = set(offsets[:upfront])
    for offset in order:
        while offset not in open_:
            delivered = next(later)
            tracker.delivered(delivered)
            open_.add(delivered)
        if offset in abandoned:
            tracker.abandon()
        else:
            tracker.finished(offset)
            open_.discard(offset)
        committable = tracker.committable()
        if committable is not None:
            assert all(unfinished >= committable for unfinished in open_)
            tracker.committed(committable)
    for offset in later:
        tracker.delivered(offset)
    assert tracker.in_flight == 0
    if not abandoned:
        assert tracker.committable() is None
        tracker.delivered(offsets[-1] + 1)
        tracker.finished(offsets[-1] + 1)
        assert tracker.committable() == offsets[-1] + 2
