from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from ddbio.testing.calls.statements import batch_execute_statement, execute_statement, execute_transaction
from ddbio.testing.calls.writes import put_item
from ddbio.testing.refusal import Refusal

NESTED = {"l": {"L": [{"N": "1"}, {"M": {"x": {"S": "y"}}}]}}


@pytest.fixture
def held(hold):
    """Return a database with a table of two partitions with items, and an index."""
    made = hold()
    index = {
        "IndexName": "by-n",
        "KeySchema": [{"AttributeName": "n", "KeyType": "HASH"}],
        "Projection": {"ProjectionType": "ALL"},
    }
    made.create("tab", ("pk:S", "sk:N"), more=["n:N"], GlobalSecondaryIndexes=[index])
    made.now = 1000.0
    for pk in ("a", "b"):
        for sk in range(4):
            key = {"pk": {"S": pk}, "sk": {"N": str(sk)}}
            made.call(
                put_item, TableName="tab", Item={**key, "n": {"N": str(sk % 2)}, "s": {"S": f"it's {sk}"}, **NESTED}
            )
    made.now = 2000.0
    return made


def run(held, statement, *parameters, **members):
    """Run a statement."""
    request = {"Parameters": list(parameters)} if parameters else {}
    return held.call(execute_statement, Statement=statement, **request, **members)


def refused(held, statement, *parameters, **members):
    """Return the error body of a refused statement."""
    with pytest.raises(Refusal) as caught:
        run(held, statement, *parameters, **members)
    return caught.value.body


def keys(reply):
    """Return the keys of a reply's items as text."""
    return "".join(item["pk"]["S"] + item["sk"]["N"] for item in reply["Items"])


@pytest.mark.parametrize(
    ("condition", "expected", "units"),
    [
        ("pk = 'a'", "a0a1a2a3", 0.5),
        ("pk = 'a' AND sk = 2", "a2", 0.5),
        ("sk > 0 AND 'a' = pk AND n = 1", "a1a3", 0.5),
        ("(pk = 'a' AND sk BETWEEN 1 AND 2)", "a1a2", 0.5),
        ("(pk = 'a') AND ((sk = 1))", "a1", 0.5),
        ("pk = 'a' AND sk IN [0, 3]", "a0a3", 0.5),
        ("pk = 'a' AND (sk = 0 OR sk = 3)", "a0a3", 0.5),
        ("pk = 'a' AND s = 'it''s 2'", "a2", 0.5),
        ("pk = 'a' AND NOT sk >= 1 AND begins_with(\"s\", 'it')", "a0", 0.5),
        ("pk = 'a' AND sk = 1 OR pk = 'a' AND sk = 2", "a1a2", 2.0),
        ("pk = 'a' AND zz IS MISSING AND n IS NOT MISSING AND n IS NOT NULL AND sk != 3", "a0a1a2", 0.5),
        ("pk = 'a' AND l[1].x = 'y' AND l[0] = 1 AND contains(s, '3')", "a3", 0.5),
        ("pk IN ('a', 'c') AND sk <> 0", "a1a2a3", 2.0),
        ("pk = 'a' AND n = -1", "", 0.5),
    ],
)
def test_selects_read_the_items_of_their_condition(held, condition, expected, units):
    """A condition with the partition key is a query and costs its units. Any other condition is a scan."""
    reply = run(held, f'SELECT * FROM "tab" WHERE {condition}', ReturnConsumedCapacity="TOTAL")
    assert keys(reply) == expected
    assert reply["ConsumedCapacity"]["CapacityUnits"] == units


def test_selects_name_attributes_by_the_end_of_their_path(held):
    """A path selects one value, which gets the last name of the path."""
    (item,) = run(held, "SELECT sk, l[1].x, zz FROM tab WHERE pk = 'a' AND sk = 1")["Items"]
    assert item == {"sk": {"N": "1"}, "x": {"S": "y"}}
    (item,) = run(held, "select sk from tab where pk = ? and sk = ?", {"S": "a"}, {"N": "1.0"})["Items"]
    assert item == {"sk": {"N": "1"}}


def test_selects_read_indexes_and_continue_by_token(held):
    """An index is named after a dot, ORDER BY can reverse the page, and a token continues it."""
    assert sorted(item["sk"]["N"] for item in run(held, 'SELECT * FROM "tab"."by-n" WHERE n = 1')["Items"]) == [
        "1",
        "1",
        "3",
        "3",
    ]
    statement = "SELECT * FROM tab WHERE pk = 'a' ORDER BY sk DESC"
    first = run(held, statement, Limit=3)
    assert keys(first) == "a3a2a1"
    second = run(held, statement, NextToken=first["NextToken"])
    assert (keys(second), "NextToken" in second) == ("a0", False)
    for token in ("x", first["NextToken"]):
        assert "NextToken" in refused(held, "SELECT * FROM tab", NextToken=token)["message"]


def test_inserts_make_only_what_is_absent(held):
    """An inserted item can have values of every type. An existing key is a duplicate."""
    run(
        held,
        "INSERT INTO tab VALUE {'pk': 'c', 'sk': ?, 'm': {'x': [true, null, -1.5]}, 't': <<'a', 'b'>>}",
        {"N": "7"},
    )
    (item,) = run(held, "SELECT * FROM tab WHERE pk = 'c'")["Items"]
    assert item["m"] == {"M": {"x": {"L": [{"BOOL": True}, {"NULL": True}, {"N": "-1.5"}]}}}
    assert item["t"] == {"SS": ["a", "b"]}
    body = refused(held, "INSERT INTO tab VALUE {'pk': 'c', 'sk': 7}")
    assert body["__type"].endswith("#DuplicateItemException")


def test_updates_change_existing_items(held):
    """SET, REMOVE, arithmetic, lists and sets change an item under a condition, and can return it."""
    where = "WHERE pk = 'a' AND sk = 1"
    text = f"UPDATE tab SET n = n + 5, l = list_append(l, [2]) SET t = set_add(t, <<'x'>>) REMOVE s {where} AND n = 1"
    assert run(held, text + " RETURNING MODIFIED OLD *")["Items"] == [{"n": {"N": "1"}, "s": {"S": "it's 1"}, **NESTED}]
    (item,) = run(held, f"SELECT * FROM tab {where}")["Items"]
    assert item["n"] == {"N": "6"}
    assert item["l"]["L"] == [*NESTED["l"]["L"], {"N": "2"}]
    assert (item["t"], "s" in item) == ({"SS": ["x"]}, False)
    run(held, f"UPDATE tab SET t = set_delete(t, <<'x'>>) {where}")
    assert refused(held, text)["__type"].endswith("#ConditionalCheckFailedException")
    assert refused(held, "UPDATE tab SET s = 1 WHERE pk = 'a' AND sk = 9")["__type"].endswith(
        "#ConditionalCheckFailedException"
    )


def test_deletes_obey_their_condition(held):
    """DELETE removes one item, under the further conditions of its WHERE clause."""
    text = "DELETE FROM tab WHERE pk = 'a' AND sk = 1"
    assert refused(held, text + " AND n = 7")["__type"].endswith("#ConditionalCheckFailedException")
    (old,) = run(held, text + " AND n = 1 RETURNING ALL OLD *")["Items"]
    assert old["s"] == {"S": "it's 1"}
    assert run(held, text)["Items"] == []
    assert keys(run(held, "SELECT * FROM tab WHERE pk = 'a'")) == "a0a2a3"


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELECTT * FROM tab", "Unexpected token: SELECTT"),
        ("SELECT * FROM tab WHERE", "Unexpected token: <EOF>"),
        ("SELECT * FROM tab WHERE pk = 'a' ORDER", "Unexpected token: <EOF>"),
        ("SELECT * FROM tab; DROP", "Unexpected character: ;"),
        ("SELECT * FROM tab WHERE pk = ?", "Number of parameters in request and statement don't match."),
        ("SELECT * FROM tab WHERE pk = 'a' OR", 'Syntax error; token: "<EOF>"'),
        ("SELECT * FROM tab ORDER BY sk DESC", "Must have WHERE clause"),
        ("SELECT * FROM tab ORDER BY sk ASC", "Must have WHERE clause"),
        ("SELECT * FROM tab WHERE pk = 'a' ORDER BY n", "Variable reference n in ORDER BY clause"),
        ("SELECT l[1.5] FROM tab", "Unexpected token: 1.5"),
        (f"SELECT l[{'9' * 5000}] FROM tab", "Unexpected token: 999"),
        ("DELETE FROM tab WHERE AND pk = 'a' AND AND sk = 1 AND", "A part of the condition is empty"),
        ("DELETE FROM tab WHERE pk = 'a' AND (sk = 1 AND)", "A part of the condition is empty"),
        ("DELETE FROM tab WHERE pk = 'a' AND sk = 1 AND ()", "A part of the condition is empty"),
        ("SELECT * FROM tab WHERE pk = 'a' RETURNING ALL OLD *", "Unexpected token: RETURNING"),
        ("EXISTS(DELETE FROM tab WHERE pk = 'a' AND sk = 1)", "Unexpected token: DELETE"),
        ("UPDATE tab SET a = set_add(b, <<'q'>>) WHERE pk = 'a' AND sk = 1", "to which they are assigned"),
        ("INSERT INTO tab VALUE 'a'", "The value to insert is no item"),
        ("INSERT INTO tab VALUE {'pk': 'a', 'sk': 1", "Unexpected token: <EOF>"),
        ("INSERT INTO tab VALUE {'pk': <<'a', 1>>}", "The elements of a set have one type"),
        ("INSERT INTO tab VALUE {'pk': -'a'}", "Unexpected token: 'a'"),
        ("UPDATE tab WHERE pk = 'a' AND sk = 1", "Unexpected token: WHERE"),
        (
            "UPDATE tab SET n = 1 WHERE pk = 'a'",
            "Where clause does not contain a mandatory equality on all key attributes",
        ),
        ("UPDATE tab SET n = 1 WHERE pk = 'a' OR sk = 1", "Where clause does not contain a mandatory equality"),
        ("DELETE FROM tab WHERE pk = 'a' AND sk = 1 RETURNING SOME *", "Statement wasn't well formed"),
        ("EXISTS(SELECT * FROM tab WHERE pk = 'a' AND sk = 1)", "EXISTS() function is only supported in transactions"),
    ],
)
def test_malformed_statements_are_refused(held, statement, message):
    """Syntax, parameters and keys are checked before anything is written."""
    assert message in refused(held, statement)["message"]


@pytest.mark.parametrize(
    "members",
    [
        {"Statement": 5},
        {"Statement": "INSERT INTO tab VALUE {'pk': 'c', 'sk': 1, 't': <<?>>}", "Parameters": [5]},
        {"Statement": "SELECT * FROM tab", "NextToken": "NQ=="},
    ],
)
def test_members_of_a_wrong_type_are_refused(held, members):
    """A statement must be text, a parameter an attribute value, and a token one that the fake made."""
    with pytest.raises(Refusal):
        held.call(execute_statement, **members)


@pytest.mark.parametrize(
    "statement",
    [
        f"SELECT * FROM tab WHERE {'(' * 1500}pk = 'a'{')' * 1500}",
        f"INSERT INTO tab VALUE {{'pk': {'[' * 3000}{']' * 3000}}}",
    ],
)
def test_too_deep_statements_are_refused(fake, connect, statement):
    """Nesting that is too deep for Python is a client error."""
    fake.load("tab", b"", "pk:S")
    with pytest.raises(ClientError, match="too deeply") as caught:
        connect(fake.endpoint_url).execute_statement(Statement=statement)
    assert caught.value.response["Error"]["Code"] == "ValidationException"


def batch(held, *texts, **members):
    """Run a batch of statements."""
    return held.call(batch_execute_statement, Statements=[{"Statement": text} for text in texts], **members)


def test_batches_answer_each_statement(held):
    """Each statement of a batch gets its item or its error."""
    texts = [
        "SELECT sk FROM tab WHERE pk = 'a' AND sk = 1",
        "SELECT * FROM absent WHERE pk = 'a'",
        "SELECT * FROM tab WHERE pk = 'a'",
        "SELECTT",
    ]
    reply = batch(held, *texts, ReturnConsumedCapacity="TOTAL")
    assert reply["Responses"][0] == {"TableName": "tab", "Item": {"sk": {"N": "1"}}}
    codes = [response["Error"]["Code"] for response in reply["Responses"][1:]]
    assert codes == ["ResourceNotFound", "ValidationError", "ValidationError"]
    assert [capacity["CapacityUnits"] for capacity in reply["ConsumedCapacity"]] == [0.5]
    first, second = batch(held, *(f"INSERT INTO tab VALUE {{'pk': 'a', 'sk': {sk}}}" for sk in (1, 9)))["Responses"]
    assert (first["Error"]["Code"], second) == ("DuplicateItem", {"TableName": "tab"})


def test_batches_only_read_or_only_write(held):
    """A batch that mixes reads and writes is refused."""
    with pytest.raises(Refusal, match="only read or only write"):
        batch(held, "DELETE FROM tab WHERE pk = 'a' AND sk = 1", "SELECT * FROM tab WHERE pk = 'a' AND sk = 1")
    assert keys(run(held, "SELECT * FROM tab WHERE pk = 'a' AND sk = 1")) == "a1"


def test_statements_can_be_longer_than_expressions(held):
    """The limit of 4 KB only applies to a client's expressions."""
    names = ", ".join(f"a{number} = {number}" for number in range(400))
    run(held, f"UPDATE tab SET {names} WHERE pk = 'a' AND sk = 1")
    (item,) = run(held, "SELECT * FROM tab WHERE pk = 'a' AND sk = 1")["Items"]
    assert item["a399"] == {"N": "399"}


def transact(held, *texts, **members):
    """Run a transaction of statements."""
    return held.call(execute_transaction, TransactStatements=[{"Statement": text} for text in texts], **members)


def test_statements_are_executed_together(held):
    """Writes and checks succeed or fail together. An existing key is a duplicate."""
    exists = "EXISTS(SELECT * FROM tab WHERE pk = 'a' AND sk = 1 AND n = {})"
    insert, update = "INSERT INTO tab VALUE {'pk': 'c', 'sk': 1}", "UPDATE tab SET n = 9 WHERE pk = 'b' AND sk = 0"
    with pytest.raises(Refusal) as caught:
        transact(held, insert, exists.format(7), "INSERT INTO tab VALUE {'pk': 'a', 'sk': 2}")
    codes = [reason["Code"] for reason in caught.value.body["CancellationReasons"]]
    assert codes == ["None", "ConditionalCheckFailed", "DuplicateItem"]
    assert run(held, "SELECT * FROM tab WHERE pk = 'c'")["Items"] == []
    first = transact(held, insert, exists.format(1), update, ClientRequestToken="t", ReturnConsumedCapacity="TOTAL")
    again = transact(held, insert, exists.format(1), update, ClientRequestToken="t", ReturnConsumedCapacity="TOTAL")
    assert first["Responses"] == again["Responses"] == [{}, {}, {}]
    assert "ReadCapacityUnits" in again["ConsumedCapacity"][0]
    assert keys(run(held, "SELECT * FROM tab WHERE pk = 'c'")) == "c1"
    assert keys(run(held, "SELECT * FROM tab WHERE pk = 'b' AND n = 9")) == "b0"


def test_statements_read_together(held):
    """A transaction of reads returns one item per statement and writes nothing."""
    select = "SELECT sk FROM tab WHERE pk = 'a' AND sk = {}"
    reply = b"".join(transact(held, select.format(1), select.format(9)))
    assert reply == b'{"Responses":[{"Item":{"sk":{"N":"1"}}},{}]}'
    with pytest.raises(Refusal, match="only read or only write"):
        transact(held, select.format(1), "DELETE FROM tab WHERE pk = 'a' AND sk = 1")
    with pytest.raises(Refusal, match="must specify the primary key"):
        transact(held, "SELECT * FROM tab WHERE pk = 'a'")
