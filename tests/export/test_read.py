"""Reads of exports from any location: every item is verified, and a damaged export yields nothing."""

import base64
import gzip
import hashlib
import json
import shutil
from contextlib import contextmanager

import pyarrow.dataset as ds
import pyarrow.orc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from item_strategies import ITEMS

import ddbio
from ddbio.cli.main import run
from ddbio.errors import DdbioError, DecodeError, ExportIncompleteError, NotFoundError
from ddbio.export.options import ExportToFilesOptions
from ddbio.export.read import read_export_to_files
from ddbio.formats import export_manifest as manifest
from ddbio.items.digest import Digest
from ddbio.items.digest_columns import digest_of_batches
from ddbio.options import parse_options
from ddbio.testing.export import ExportWriter, put_manifest

# With a running Spark session, Spark reads the exports; PySpark leaves its sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

REPORT_KEYS = {"items", "rows", "rescued", "files_read", "files", "seconds", "cpu_seconds", "json_bytes"}


def every_type(number: int) -> dict[str, dict[str, object]]:
    """Return an item with all ten types."""
    return {
        "pk": {"S": f"item-{number:05d}"},
        "n": {"N": str(number)},
        "price": {"N": f"{number}.25"},
        "b": {"B": base64.b64encode(number.to_bytes(4, "big")).decode()},
        "flag": {"BOOL": number % 2 == 0},
        "none": {"NULL": True},
        "ss": {"SS": ["x", "y"]},
        "ns": {"NS": ["1", "2.5"]},
        "bs": {"BS": [base64.b64encode(b"z").decode()]},
        "list": {"L": [{"N": "1"}, {"N": "2"}]},
        "map": {"M": {"city": {"S": "Ulm"}, "zip": {"N": "89073"}}},
    }


@pytest.fixture
def items():
    """Return 300 items of all types."""
    return [every_type(number) for number in range(300)]


@pytest.fixture
def home(tmp_path, items):
    """Return the folder of a full export of the items."""
    return ExportWriter(tmp_path / "in", files=3, empty_files=2).full(items)


def digest_of(table):
    """Return count and digest of a table's rows."""
    return digest_of_batches(table.to_batches())


def digest_of_items(items):
    """Return count and digest of items."""
    digest = Digest()
    digest.add_items(items)
    return digest


def change_manifest(home, name, change):
    """Change a manifest's objects and its checksum."""
    lines = (home / f"{name}.json").read_bytes().splitlines()
    objects = [json.loads(line) for line in lines]
    change(objects)
    put_manifest(home, name, b"".join(json.dumps(entry).encode() + b"\n" for entry in objects))


def filled(home):
    """Return the data files that have items."""
    entries = [json.loads(line) for line in (home / "manifest-files.json").read_bytes().splitlines()]
    return [home / "data" / entry["dataFileS3Key"].rpartition("/")[2] for entry in entries if entry["itemCount"]]


def replace_data(home, file, text):
    """Replace a data file's text and its checksum in the manifest."""
    data = gzip.compress(text)
    file.write_bytes(data)

    def change(entries):
        for entry in entries:
            if entry["dataFileS3Key"].endswith(file.name):
                entry["md5Checksum"] = base64.b64encode(hashlib.md5(data).digest()).decode()

    change_manifest(home, "manifest-files", change)


def test_table_equals_the_items(home, items):
    """Every item of every file is a row with the same values."""
    table = ddbio.read_export(home, nulls="keep")
    assert digest_of(table) == digest_of_items(items)
    assert table.schema.names[-1] == "_rescue"


def test_batches_have_one_schema_and_every_row(home, items):
    """The batches contain the rows of the table."""
    batches = list(ddbio.read_export_batches(home))
    assert sum(batch.num_rows for batch in batches) == len(items)
    assert {batch.schema for batch in batches} == {batches[0].schema}


@given(items=st.lists(ITEMS, max_size=30))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_export_of_any_items_reads_back_equal(items, tmp_path_factory):
    """An export of random items contains them when it is read."""
    folder = tmp_path_factory.mktemp("any")
    home = ExportWriter(folder, seed=len(items)).full(items)
    assert digest_of(ddbio.read_export(home, nulls="keep")) == digest_of_items(items)


def test_files_and_report_agree(home, tmp_path):
    """Every item is a row of a file in the report, and empty files are not read."""
    report = ddbio.read_export_to_files(home, tmp_path / "out", tasks=2, engine="local")
    assert report.items == report.rows == sum(file.rows for file in report.files) == 300
    assert (report.files_read, report.rescued, report.kind, report.filtered) == (len(filled(home)), 0, "full", False)
    assert report.to_dict().keys() >= REPORT_KEYS
    assert report.json_bytes == sum(len(gzip.decompress(file.read_bytes())) for file in filled(home))
    assert ds.dataset(tmp_path / "out").count_rows() == 300


def test_orc_holds_the_rows(home, tmp_path):
    """ORC files have the same values as the table."""
    report = ddbio.read_export_to_files(home, tmp_path / "out", format="orc", tasks=1)
    read = pyarrow.orc.ORCFile(report.files[0].path).read().sort_by("pk")
    wanted = ddbio.read_export(home).sort_by("pk")
    assert read.drop_columns("map").to_pylist() == wanted.drop_columns("map").to_pylist()


def test_orc_without_rows_is_a_file(tmp_path, items):
    """The output of an empty export has its columns, also in ORC."""
    home = ExportWriter(tmp_path / "in", files=1).full([])
    schema = ddbio.read_export(ExportWriter(tmp_path / "like", files=1).full(items)).schema
    report = ddbio.read_export_to_files(home, tmp_path / "out", format="orc", schema=schema)
    assert pyarrow.orc.ORCFile(report.files[0].path).read().column_names == schema.names


def test_values_that_fit_no_column_are_rescued(tmp_path, items):
    """Values of types that the sample lacked are rescued, counted and reported."""
    items[250]["late"] = {"S": "attribute"}
    home = ExportWriter(tmp_path / "in", files=1).full(items)
    report = ddbio.read_export_to_files(home, tmp_path / "out", sample_items=10)
    assert (report.rescued, report.misfits[0].path) == (1, "late")


def test_export_without_items_has_no_columns(tmp_path):
    """The export of an empty table becomes an empty file."""
    report = ddbio.read_export_to_files(ExportWriter(tmp_path / "in").full([]), tmp_path / "out")
    assert (report.items, report.rows, report.files_read, len(report.files)) == (0, 0, 0, 1)


def test_moved_copy_reads_like_the_export(home, tmp_path, items):
    """An export can be read from another location than its original one."""
    moved = shutil.copytree(home, tmp_path / "elsewhere" / "copy")
    shutil.rmtree(tmp_path / "in")
    assert ddbio.read_export(f"{moved}/").num_rows == len(items)


def test_other_name_of_checksums_is_known(home, items):
    """A ``.checksum`` file next to a manifest is equivalent to ``.md5``."""
    for name in ("manifest-summary", "manifest-files"):
        (home / f"{name}.md5").rename(home / f"{name}.checksum")
    assert ddbio.read_export(home).num_rows == len(items)


def test_old_manifest_without_type_is_read(home, items):
    """An export from the time before incremental ones is a full export."""
    change_manifest(home, "manifest-summary", lambda objects: objects[0].pop("exportType"))
    assert ddbio.read_export(home).num_rows == len(items)


def test_filtered_export_is_flagged(home, tmp_path):
    """The report shows that the rows are not the whole table."""
    change_manifest(
        home, "manifest-summary", lambda objects: objects[0].update(filterSpecification={"FilterExpression": "x"})
    )
    assert ddbio.read_export_to_files(home, tmp_path / "out").filtered


def test_a_folder_without_export_is_not_an_unfinished_one(home, tmp_path):
    """A folder without any trace of an export is not found; one with a trace is incomplete."""
    with pytest.raises(NotFoundError, match="has no manifest-summary"):
        ddbio.read_export(tmp_path)
    (home / "manifest-summary.json").unlink()
    with pytest.raises(ExportIncompleteError, match="not completed"):
        ddbio.read_export(home)


def damage_bytes(home):
    """Change a byte of a data file."""
    file = filled(home)[-1]
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    return file.name


def damage_head(home):
    """Change a byte that does not affect the text."""
    file = filled(home)[-1]
    data = bytearray(file.read_bytes())
    data[4] ^= 1
    file.write_bytes(data)
    return file.name


def cut_short(home):
    """Truncate a data file."""
    file = filled(home)[0]
    file.write_bytes(file.read_bytes()[:-20])
    return file.name


def remove_file(home):
    """Remove a data file."""
    file = filled(home)[0]
    file.unlink()
    return file.name


def put_folder(home):
    """Replace a data file by a folder."""
    file = filled(home)[0]
    file.unlink()
    file.mkdir()
    return file.name


def lose_line(home):
    """Remove an item from a file, and correct its checksum."""
    file = filled(home)[0]
    replace_data(home, file, b"\n".join(gzip.decompress(file.read_bytes()).splitlines()[1:]))
    return file.name


def add_line(home):
    """Add an item to a file, and correct its checksum."""
    file = filled(home)[0]
    text = gzip.decompress(file.read_bytes())
    replace_data(home, file, text + text.splitlines()[0] + b"\n")
    return file.name


def change_summary(home):
    """Change the summary without its checksum."""
    path = home / "manifest-summary.json"
    path.write_bytes(path.read_bytes() + b" ")
    return "manifest-summary"


def change_files(home):
    """Change the list of files without its checksum."""
    path = home / "manifest-files.json"
    path.write_bytes(path.read_bytes() + b"\n")
    return "manifest-files"


def lose_checksum(home):
    """Remove a manifest's checksum."""
    (home / "manifest-files.md5").unlink()
    return "manifest-files"


def lose_files(home):
    """Remove the list of files."""
    (home / "manifest-files.json").unlink()
    return "manifest-files"


def lose_entry(home):
    """Remove a file from the list."""
    change_manifest(
        home, "manifest-files", lambda entries: entries.remove(next(entry for entry in entries if entry["itemCount"]))
    )
    return "manifest-files"


DAMAGES = [
    damage_bytes, damage_head, cut_short, remove_file, put_folder, lose_line, add_line, change_summary, change_files,
    lose_checksum, lose_files, lose_entry,
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_damaged_export_leaves_nothing(home, tmp_path, damage):
    """Any damage is an error that names the file, and the target is unchanged."""
    named = damage(home)
    for read in (lambda: ddbio.read_export(home), lambda: list(ddbio.read_export_batches(home))):
        with pytest.raises(ExportIncompleteError, match=named):
            read()
    with pytest.raises(ExportIncompleteError, match=named):
        ddbio.read_export_to_files(home, tmp_path / "out", sample_items=1)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("line", "problem"), [(b'{"Item":{"a":{"X":1}}}', "a: "), (b'{"Item":x}', "column 9: ")])
def test_files_of_another_kind_are_refused_by_line(home, line, problem):
    """A file with the right checksum but without items is named once, with the line."""
    file = filled(home)[0]
    text = gzip.decompress(file.read_bytes()).splitlines()
    text[2] = line
    replace_data(home, file, b"\n".join(text))
    with pytest.raises(DecodeError, match=rf"{file.name}, line 3: {problem}") as raised:
        ddbio.read_export(home)
    assert (raised.value.line, raised.value.uri) == (3, str(file))


def test_manifest_cannot_lead_elsewhere(home, tmp_path):
    """A file outside the export is not read, even if the manifest names it with the right checksum."""
    secret = tmp_path / "secret.json.gz"
    filled(home)[0].rename(secret)

    def lead(entries):
        next(entry for entry in entries if entry["itemCount"])["dataFileS3Key"] = f"data/../../../../{secret.name}"

    change_manifest(home, "manifest-files", lead)
    with pytest.raises(ExportIncompleteError, match="plain file name"):
        ddbio.read_export(home)


def test_huge_manifest_is_not_held(home, monkeypatch):
    """A manifest beyond the limit is read only up to the limit, and is refused even with the right checksum."""
    monkeypatch.setattr(manifest, "MAX_MANIFEST_BYTES", 100)
    with pytest.raises(ExportIncompleteError, match=r"manifest-summary.json is larger than 100 bytes"):
        ddbio.read_export(home)


def test_longest_items_and_densest_files_are_read(tmp_path):
    """Items of maximum size are not refused as decompression bombs: long numbers, and text that compresses best."""
    numbers = {"pk": {"S": "numbers"}, "l": {"L": [{"N": "1" + "0" * 125}] * 40_000}}
    texts = [{"pk": {"S": f"text-{number}"}, "s": {"S": "a" * 390_000}} for number in range(200)]
    home = ExportWriter(tmp_path, files=1).full([numbers, *texts])
    assert sum(batch.num_rows for batch in ddbio.read_export_batches(home)) == 201


def test_command_prints_the_report(home, tmp_path, capsys):
    """The command reads an export and prints one JSON object: the report or the error."""
    run(["export", "read", str(home), str(tmp_path / "out"), "--json"])
    assert json.loads(capsys.readouterr().out).keys() >= REPORT_KEYS
    remove_file(home)
    with pytest.raises(SystemExit):
        run(["export", "read", str(home), str(tmp_path / "out2"), "--json"])
    assert json.loads(capsys.readouterr().out)["error"]["type"] == "ExportIncompleteError"
    assert issubclass(ExportIncompleteError, DdbioError)


def test_dry_run_writes_nothing_and_misses_files(home, tmp_path, capsys):
    """The plan has the input of the job; a missing file is named before anything is read."""
    out = tmp_path / "out"
    assert not run(["export", "read", str(home), str(out), "--dry-run", "--json"])
    plan = json.loads(capsys.readouterr().out)
    assert (plan["kind"], plan["encoding"], plan["items"], plan["files"]) == ("full", "json", 300, 3)
    assert plan["file_bytes"] == sum(file.stat().st_size for file in filled(home))
    assert plan["columns"]["price"] == "decimal128(38, 2)"
    assert {"units", "requests", "bytes", "seconds", "usd", "lines"} <= plan.keys()
    name = remove_file(home)
    with pytest.raises(SystemExit):
        run(["export", "read", str(home), str(out), "--dry-run"])
    assert f"{name} is missing" in capsys.readouterr().err
    assert not out.exists()


def test_progress_is_shown_with_the_plan(home, tmp_path, capsys):
    """Progress is printed on stderr; scripts get only the report."""
    assert not run(["export", "read", str(home), str(tmp_path / "a"), "--engine", "local"])
    assert "300 in 3 files" in capsys.readouterr().err
    assert not run(["export", "read", str(home), str(tmp_path / "b"), "--engine", "local", "--json"])
    assert capsys.readouterr().err == ""


def test_what_is_read_is_counted_while_it_is_read(home, tmp_path):
    """The watcher of the job finally sees the items and the bytes of text of the report."""
    seen = []

    class Watch:
        @contextmanager
        def running(self, plan, budget):
            yield
            seen.append((plan.items, budget.usage().items, budget.usage().wire_bytes))

    options = {"source": str(home), "dest": str(tmp_path / "out"), "engine": "local"}
    report = read_export_to_files(parse_options(ExportToFilesOptions, options), watch=Watch())
    assert seen == [(report.items, report.items, report.json_bytes)]


def test_ion_export_has_the_same_rows(tmp_path, items):
    """The same items exported in Ion become the same rows."""
    home = ExportWriter(tmp_path, encoding="ION").full(items)
    assert digest_of(ddbio.read_export(home, nulls="keep")) == digest_of_items(items)
