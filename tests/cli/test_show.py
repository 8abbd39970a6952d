"""Values as people read them."""

from ddbio.cli.show import format_values


def test_values_that_say_nothing_are_left_out():
    """Lists are parted by commas, counts by thousands; what is empty or off has no line."""
    shown = format_values({"items": 1200, "indexes": ("a=b:S", "c=d:N"), "none": None, "off": False, "left": ()})
    assert shown == "items    1,200\nindexes  a=b:S, c=d:N"
