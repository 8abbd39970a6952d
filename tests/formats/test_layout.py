"""The report of a dataset's layout, from sizes and footers alone."""

from ddbio.formats.layout import Footer, LayoutCounter

MIB = 1024 * 1024


def test_sizes_rows_and_columns_are_summed():
    """Files are counted by size, format and partition, and the bytes of columns are summed from the footers."""
    counter = LayoutCounter(small_than=10 * MIB)
    counter.add(4 * MIB, "parquet", {"day": "1"}, None, Footer(100, 2, {"a": (60, 120), "b": (20, 40)}))
    counter.add(40 * MIB, "parquet", {"day": "2"}, 7, Footer(300, 1, {"a": (20, 40)}))
    counter.add(12 * MIB, "csv", {"day": None}, 50, None)
    report = counter.report("there", 1.0, 0.5)
    assert (report.files, report.bytes, report.rows) == (3, 56 * MIB, 450)
    assert (report.small_file_ratio, report.median_file_bytes) == (0.3333, 12 * MIB)
    assert report.formats == {"parquet": 2, "csv": 1}
    assert (report.row_groups, report.row_groups_per_file, report.rows_per_file) == (3, 1.5, 150.0)
    assert (report.compression_ratio, report.skew) == (2.0, 3.333)
    assert [
        (partition.partition, partition.files, partition.rows, partition.small_files) for partition in report.partitions
    ] == [
        ({"day": "2"}, 1, 300, 0),
        ({"day": None}, 1, 50, 0),
        ({"day": "1"}, 1, 100, 1),
    ]
    assert [(column.name, column.bytes, column.bytes_per_row) for column in report.columns] == [
        ("a", 80, 0.2),
        ("b", 20, 0.2),
    ]


def test_histogram_has_every_class_between_the_smallest_and_the_largest():
    """Each file is in one class, whose lower bound is inclusive; empty classes between others are included."""
    counter = LayoutCounter(small_than=MIB)
    for size in (0, MIB - 1, MIB, 40 * MIB, 5000 * MIB):
        counter.add(size, "parquet", {}, 1, None)
    histogram = counter.report("there", 0, 0).histogram
    assert [size_class.files for size_class in histogram] == [2, 1, 0, 1, 0, 0, 0, 0, 1]
    assert (histogram[0].from_bytes, histogram[0].to_bytes, histogram[-1].to_bytes) == (0, MIB, None)
    assert sum(size_class.bytes for size_class in histogram) == 5042 * MIB - 1


def test_rows_are_unknown_if_those_of_one_file_are():
    """An incomplete sum is null."""
    counter = LayoutCounter(small_than=MIB)
    counter.add(10, "csv", {}, None, None)
    counter.add(10, "csv", {}, 5, None)
    report = counter.report("there", 0, 0)
    assert (report.rows, report.rows_per_file, report.bytes_per_row, report.row_groups) == (None, None, None, None)
    assert (report.skew, report.compression_ratio, report.partitions) == (None, None, ())
