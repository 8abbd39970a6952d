"""The hottest keys are found among many, in bounded memory."""

from ddbio.load.batches import MOST_KEYS, HotKeys


def test_a_hot_key_is_found_among_many():
    """Keys that come by chance neither hide a hot one nor pile up."""
    keys = HotKeys()
    for number in range(10 * MOST_KEYS):
        keys.add(f"chance-{number}")
        if number % 50 == 0:
            keys.add("hot")
    assert keys.hottest() == {"hot": 10 * MOST_KEYS // 50}
    assert len(keys._times) <= MOST_KEYS


def test_counts_of_tasks_add_up():
    """What one task saw once and another twice is seen three times."""
    one, other = HotKeys(), HotKeys()
    one.add("a")
    other.add("a", 2)
    other.add("b", 9)
    one.merge(other)
    assert list(one.hottest().items()) == [("b", 9), ("a", 3)]
