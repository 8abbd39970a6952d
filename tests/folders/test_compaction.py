from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ddbio.commit.snapshot import LiveFile
from ddbio.folders.compact import CompactRule, plan_groups

FOLDERS = ("", "a=1/", "a=1/b=2/", "a=2/")
SIZES = st.integers(0, 3_000)
FILES = st.lists(st.tuples(st.sampled_from(FOLDERS), SIZES, st.booleans()), max_size=40).map(
    lambda files: [
        LiveFile(
            f"{folder}{'other' if other else 'part'}{number:03}",
            size,
            partition=dict(pair.split("=") for pair in folder.split("/")[:-1]),
        )
        for number, (folder, size, other) in enumerate(files)
    ]
)
RULE = CompactRule(target_bytes=1_000, small_bytes=750)


@given(FILES)
def test_groups_hold_small_files_of_one_folder_and_save_files(files):
    """No file is in two groups, none is large, and every group becomes fewer files."""
    groups = plan_groups(files, RULE)
    paths = [file.path for group in groups for file in group.files]
    assert len(set(paths)) == len(paths)
    for group in groups:
        assert all(file.size_bytes < RULE.small_bytes for file in group.files)
        assert len({file.path.rpartition("/")[0] for file in group.files}) == 1
        assert group.expected_files < len(group.files)
        assert group.bytes == sum(file.size_bytes for file in group.files)


@given(FILES)
def test_a_second_plan_finds_little(files):
    """Once the groups are files of the target size and a remainder, only the remainders of a folder are merged."""
    groups = plan_groups(files, RULE)
    gone = {file.path for group in groups for file in group.files}
    new = []
    for number, group in enumerate(groups):
        folder, size = group.files[0].path.rpartition("/")[0], group.bytes
        prefix = f"{folder}/" if folder else ""
        while size > 0:
            new.append(LiveFile(f"{prefix}new{number}-{size}", min(size, RULE.target_bytes)))
            size -= RULE.target_bytes
    again = plan_groups([file for file in files if file.path not in gone] + new, RULE)
    assert sum(group.bytes for group in again) <= sum(
        file.size_bytes for file in [*files, *new] if file.size_bytes < 750
    )
    assert len(again) <= len({file.path.rpartition("/")[0] for file in files})


@given(FILES)
def test_other_formats_are_rewritten_alone(files):
    """A file of another format is in a group for any size; partitions that were not selected are not changed."""
    rule = CompactRule(
        target_bytes=1_000, small_bytes=750, partition={"a": "1"}, is_other=lambda file: "other" in file.path
    )
    chosen = {file.path for group in plan_groups(files, rule) for file in group.files}
    assert chosen >= {file.path for file in files if "other" in file.path and file.partition.get("a") == "1"}
    assert all(path.startswith("a=1/") for path in chosen)
