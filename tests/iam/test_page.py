"""The page of policies is made from the table of calls."""

from tests.iam.page import PAGE, page_text


def test_the_page_is_generated(monkeypatch):
    """It is what the table makes it: run ``python -m tests.iam.page`` after a change."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    assert PAGE.read_text("utf-8") == page_text()
