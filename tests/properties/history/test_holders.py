"""Blocks are counted as if all tables were read, but only those that changed are."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from schedproof.properties.history.holders import Holders

TABLES = st.dictionaries(
    st.sampled_from("abcd"), st.lists(st.integers(0, 6), max_size=5).map(tuple), max_size=4
)


@given(st.lists(TABLES, max_size=6))
def test_what_is_held_and_shared_depends_on_the_tables_alone(steps):
    holders = Holders()
    for tables in steps:
        times = Counter(number for table in tables.values() for number in table)
        assert holders.count(tables) == len(times)
        assert holders.shared(tables) == {number for number in times if times[number] > 1}


class Read(tuple[int, ...]):
    """A table that counts how often it is read."""

    reads = 0

    def __iter__(self):
        Read.reads += 1
        return super().__iter__()

    def __getitem__(self, key):
        Read.reads += 1
        return super().__getitem__(key)


def test_tables_that_did_not_change_are_not_read():
    holders = Holders()
    kept, grows = Read(range(500)), tuple(range(600, 700))
    holders.count({"a": kept, "b": grows})
    Read.reads = 0
    assert holders.count({"a": kept, "b": (*grows, 3)}) == 600
    assert Read.reads == 0
