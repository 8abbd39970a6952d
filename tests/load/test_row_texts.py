"""Texts of rows that loops join, beside joining them in Python."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ddbio.load.requests import RowTexts, UpdateExpressions, joined_texts

TEXT = st.binary(max_size=90)


@st.composite
def columns_of_rows(draw, count):
    """Return a column of texts, and the same texts as a list."""
    kind = draw(st.sampled_from(["own", "chosen", "where", "replaced", "within", "spread"]))
    if kind == "where":
        flags, text = draw(arrays(np.bool_, count)), draw(TEXT)
        return RowTexts.where(flags, text), [text if flag else b"" for flag in flags]
    if kind == "chosen":
        texts = draw(st.lists(TEXT, min_size=1, max_size=3))
        choices = draw(arrays(np.int64, count, elements=st.integers(0, len(texts) - 1)))
        return RowTexts.chosen(texts, choices), [texts[choice] for choice in choices]
    texts = draw(st.lists(TEXT, min_size=count, max_size=count))
    made = own_texts(texts)
    if kind == "replaced":
        others = draw(st.dictionaries(st.integers(0, count - 1), TEXT)) if count else {}
        return made.replaced(others), [others.get(row, text) for row, text in enumerate(texts)]
    if kind == "within":
        flags = draw(arrays(np.bool_, count))
        return made.within(flags), [text if flag else b"" for text, flag in zip(texts, flags, strict=True)]
    if kind == "spread":
        rows = np.flatnonzero(draw(arrays(np.bool_, count)))
        found = [b""] * count
        for row, text in zip(rows, texts, strict=False):
            found[row] = text
        return own_texts(texts[: len(rows)]).spread(rows, count), found
    return made, texts


def own_texts(texts):
    """Return texts that lie back to back."""
    return RowTexts.of_offsets(np.frombuffer(b"".join(texts), np.uint8), np.cumsum([0, *map(len, texts)]))


@given(st.data())
def test_rows_hold_the_texts_of_all_columns(data):
    """Each row is its texts in the order of the columns, wherever they lie, and its offsets say where."""
    count = data.draw(st.integers(0, 12))
    drawn = data.draw(st.lists(columns_of_rows(count), min_size=1, max_size=4))
    # A source that several columns share is copied once.
    drawn.append(drawn[0])
    expected = [b"".join(texts) for texts in zip(*(texts for _, texts in drawn), strict=True)]
    made, offsets = joined_texts([column for column, _ in drawn])
    assert made.tobytes() == b"".join(expected)
    assert offsets.tolist() == np.cumsum([0, *map(len, expected)]).tolist()
    for column, texts in drawn:
        assert [column.text(row) for row in range(count)] == texts


def plain_expression(has):
    """Return what sets some columns and removes the others."""
    sets = ", ".join(f"#n{place} = :v{place}" for place, each in enumerate(has) if each)
    removes = ", ".join(f"#n{place}" for place, each in enumerate(has) if not each)
    clauses = [f"{verb} {named}" for verb, named in (("SET", sets), ("REMOVE", removes)) if named]
    return f',"UpdateExpression":"{" ".join(clauses)}"'.encode()


@given(st.data(), st.integers(1, 140))
def test_expressions_set_what_is_there_and_remove_the_rest(data, columns):
    """The expression of each row is that of a plain builder, for any number of columns and any of them missing."""
    count = data.draw(st.integers(0, 6))
    present = data.draw(arrays(np.bool_, (count, columns)))
    made = UpdateExpressions(columns).of(present)
    assert [made.text(row) for row in range(count)] == [plain_expression(has) for has in present]


@pytest.mark.parametrize(("rows", "columns"), [(3000, 70), (2, 200_000)])
def test_expressions_of_many_patterns_are_made_block_by_block(rows, columns):
    """More patterns than are made at once, and one pattern that is more than that by itself, are no different."""
    present = np.random.default_rng(0).random((rows, columns)) < 0.5
    made = UpdateExpressions(columns).of(np.concatenate([present, present]))
    assert len(made.begins) == 2 * rows
    assert (made.begins[:rows] == made.begins[rows:]).all()
    for row in range(0, rows, max(1, rows // 50)):
        assert made.text(row) == plain_expression(present[row])
