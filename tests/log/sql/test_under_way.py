"""The books of a writer, against the rules that they have to keep whatever happens."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidemill.log.sql.under_way import Numbers, UnderWay

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["reserve", "write", "show", "take over", "withdraw"]),
        st.integers(0, 5),
    ),
    max_size=60,
)


@given(STEPS)
def test_what_is_shown_is_dense_in_order_and_stays(steps: list[tuple[str, int]]) -> None:
    books = UnderWay(pointer=0, time_us=0)
    given_out: list[Numbers] = []
    shown: list[Numbers] = []
    stored = 0  # where the pointer of the server stands; the writer may not know yet
    for at, (step, number) in enumerate(steps):
        alive = [one for one in given_out if not one.is_shown and not one.is_withdrawn]
        if step == "reserve":
            given_out.append(books.reserve(number, now_us=60 - at))
        elif step == "write" and alive:
            books.written(alive[number % len(alive)], ())
        elif step == "show":
            covered = books.showable()
            if covered:
                stored = covered[-1].last
                if number % 2:  # else the answer is lost, and only a takeover tells
                    books.shown(covered)
                else:
                    books.taken_over(stored)
        elif step == "take over":
            books.taken_over(stored)
            assert not any(one.is_written for one in alive if not one.is_shown)
        elif step == "withdraw" and alive:
            books.withdraw(alive[number % len(alive)])
        shown = [one for one in given_out if one.is_shown]
        numbers = [seq for one in shown for seq in range(one.first, one.last + 1)]
        assert numbers == list(range(1, books.pointer + 1))
        assert [one.time_us for one in shown] == sorted(one.time_us for one in shown)
        assert not any(one.is_withdrawn for one in shown)
        left = [one for one in given_out if not one.is_shown and not one.is_withdrawn]
        assert books.is_idle == (not left)
        assert books.next_seq == (left[-1].last if left else books.pointer) + 1
