from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ddbio.commit.snapshot import LiveFile
from ddbio.folders.compact import CompactRule, plan_groups

FOLDERS = ("", "a=1/", "a=1/b=2/", "a=2/")
SIZES = st.integers(0, 3_000)
FILES = st.lists(st.tuples(st.sampled_from(FOLDERS), SIZES, st.booleans()), max_size=40).map(
    lambda found: [
        LiveFile(
            f"{folder}{'other' if other else 'part'}{number:03}",
            size,
            partition=dict(each.split("=") for each in folder.split("/")[:-1]),
        )
        for number, (folder, size, other) in enumerate(found)
    ]
)
RULE = CompactRule(target_bytes=1_000, small_bytes=750)


@given(FILES)
def test_groups_hold_small_files_of_one_folder_and_save_files(files):
    """No file is in two groups, none is large, and every group becomes fewer files."""
    groups = plan_groups(files, RULE)
    paths = [each.path for group in groups for each in group.files]
    assert len(set(paths)) == len(paths)
    for group in groups:
        assert all(each.size_bytes < RULE.small_bytes for each in group.files)
        assert len({each.path.rpartition("/")[0] for each in group.files}) == 1
        assert group.expected_files < len(group.files)
        assert group.bytes == sum(each.size_bytes for each in group.files)


@given(FILES)
def test_a_second_plan_finds_little(files):
    """Once the groups are files of the target size and one rest, at most rests of one folder are left to merge."""
    groups = plan_groups(files, RULE)
    gone = {each.path for group in groups for each in group.files}
    new = []
    for number, group in enumerate(groups):
        folder, size = group.files[0].path.rpartition("/")[0], group.bytes
        prefix = f"{folder}/" if folder else ""
        while size > 0:
            new.append(LiveFile(f"{prefix}new{number}-{size}", min(size, RULE.target_bytes)))
            size -= RULE.target_bytes
    again = plan_groups([each for each in files if each.path not in gone] + new, RULE)
    assert sum(group.bytes for group in again) <= sum(
        each.size_bytes for each in [*files, *new] if each.size_bytes < 750
    )
    assert len(again) <= len({each.path.rpartition("/")[0] for each in files})


@given(FILES)
def test_other_formats_are_rewritten_alone(files):
    """A file of another format is in a group whatever its size; partitions that were not chosen are left alone."""
    rule = CompactRule(
        target_bytes=1_000, small_bytes=750, partition={"a": "1"}, is_other=lambda each: "other" in each.path
    )
    chosen = {each.path for group in plan_groups(files, rule) for each in group.files}
    assert chosen >= {each.path for each in files if "other" in each.path and each.partition.get("a") == "1"}
    assert all(path.startswith("a=1/") for path in chosen)
