"""CSV for imports: the items that the service will make of it, or a refusal."""

import csv
import io
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddbio.errors import OptionError
from ddbio.load.import_files import LineFormat, line_encoder

KEY = (("pk", "S"), ("sk", "N"))
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=5)


def line_format(**options):
    """Return the format of lines of CSV."""
    return LineFormat(**{"key": KEY, "format": "csv", **options})


@given(
    st.lists(st.tuples(TEXTS.filter(bool), st.integers(-(10**18), 10**18), TEXTS), min_size=1),
    st.sampled_from(",;:|\t "),
)
def test_any_text_is_read_back(rows, delimiter):
    """A reader of CSV finds the texts of its row in each line, with any quotes and delimiters in them."""
    batch = pa.RecordBatch.from_arrays([pa.array(column) for column in zip(*rows, strict=True)], ["pk", "sk", "text"])
    lines = line_encoder(batch.schema, line_format(delimiter=delimiter))
    encoded = lines.encode(batch)
    assert not encoded.refusals
    assert encoded.offsets.tolist()[-1] == len(encoded.text)
    text = io.StringIO((lines.header + encoded.text.tobytes()).decode(), newline="")
    assert list(csv.reader(text, delimiter=delimiter)) == [["pk", "sk", "text"], *([a, str(b), c] for a, b, c in rows)]
    last = encoded.text[encoded.offsets[-2] :].tobytes()
    expected = {"pk": {"S": rows[-1][0]}, "sk": {"N": str(rows[-1][1])}, "text": {"S": rows[-1][2]}}
    assert line_format(delimiter=delimiter).item_of(last, lines.header) == expected


@pytest.mark.parametrize(
    ("column", "match"),
    [
        ({"n": [1]}, "would be text in the table: csv_strings"),
        ({"l": [["a"]]}, "would be text in the table"),
        ({"b": [b"x"]}, "would be text in the table"),
        ({"a;b": ["x"]}, None),
        ({"a,b": ["x"]}, "cannot be in the header"),
        ({'a"b': ["x"]}, "cannot be in the header"),
        ({"ä": ["x"]}, "cannot be in the header"),
        ({"_rescue": ["x"]}, "cannot be in the header"),
        ({f"c{n}": ["x"] for n in range(254)}, "at most 255 columns"),
    ],
)
def test_columns_that_csv_does_not_support_are_refused(column, match):
    """Lost types, invalid names in a header, and too many columns are refused."""
    batch = pa.RecordBatch.from_pydict({"pk": ["a"], "sk": [1], **column})
    if match is None:
        assert line_encoder(batch.schema, line_format()).encode(batch).refusals == ()
        return
    with pytest.raises(OptionError, match=match):
        line_encoder(batch.schema, line_format())


@pytest.mark.parametrize("keys", [{"pk": [1], "sk": [1]}, {"pk": ["a"], "sk": ["1"]}, {"pk": ["a"], "sk": [b"1"]}])
def test_keys_have_their_types(keys):
    """A column of another type than its key is refused."""
    with pytest.raises(OptionError, match=r"key '.k' of type"):
        line_encoder(pa.RecordBatch.from_pydict(keys).schema, line_format())


def test_numbers_become_text_when_asked():
    """Numbers, booleans and dates are converted to text, also in the items."""
    batch = pa.RecordBatch.from_pydict({"pk": ["a"], "sk": [1], "n": [2], "d": [Decimal("1.50")], "t": [True]})
    encoded = line_encoder(batch.schema, line_format(csv_strings=True)).encode(batch)
    assert encoded.text.tobytes() == b'"a",1,"2","1.50","true"\n'
    assert encoded.items.to_pylist() == [{"pk": "a", "sk": 1, "n": "2", "d": "1.50", "t": "true"}]


@pytest.mark.parametrize(
    ("value", "rule"), [(None, "csv_null"), ("two\nlines", "csv_newline"), ("two\rlines", "csv_newline")]
)
def test_rows_that_csv_does_not_support_are_refused(value, rule):
    """Nulls cannot be left out, and an item is one line. The error has the first such row."""
    batch = pa.RecordBatch.from_pydict({"pk": ["a", "b", "c"], "sk": [1, 2, 3], "text": ["x", value, value]})
    (refusal,) = line_encoder(batch.schema, line_format()).encode(batch).refusals
    assert (refusal.row, refusal.attribute, refusal.rule) == (1, "text", rule)
