"""``./task``, run in a temporary folder with its own PATH, so that tests choose the programs of the machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOOLS = ("cat", "cksum", "dirname", "find", "rm", "sed", "sh")
FAKE_PYTHON = """\
case "$*" in
  '-m venv '*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && echo made >>venv.log ;;
  *'print("yes")'*) echo yes ;;
  '-m pip'*) echo "$*" >>pip.log ;;
esac
"""


class Machine:
    """Folder with the script and a PATH with only the programs of a test."""

    def __init__(self, folder: Path, shell: str) -> None:
        self.folder, self.shell, self.variables = folder, shell, {}
        (folder / "bin").mkdir()
        for name in ("requirements.lock", "requirements-ministack.lock", "pyproject.toml"):
            (folder / name).write_text(name)
        # Only the test's own Java may be found.
        (folder / "task").write_text((ROOT / "task").read_text("utf-8").replace("/usr/lib/jvm", f"{folder}/jvm"))
        for name in (*TOOLS, "cp", "mkdir"):
            (folder / "bin" / name).symlink_to(shutil.which(name))

    def command(self, path: str, script: str) -> Path:
        """Put a shell script into a folder of the PATH."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!{self.folder}/bin/sh\n{script}\n")
        file.chmod(0o755)
        return file

    def java(self, path: str, version: str) -> None:
        """Put a Java of some version there."""
        self.command(path, f"echo 'openjdk version \"{version}\" 2024-01-01' >&2")

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run ``./task`` with these words."""
        variables = {"PATH": f"{self.folder}/bin", **self.variables}
        command = [shutil.which(self.shell), self.folder / "task", *words]
        return subprocess.run(command, env=variables, cwd="/", capture_output=True, text=True, check=False)

    def logged(self, name: str) -> list[str]:
        """Return the lines a fake program wrote."""
        file = self.folder / name
        return file.read_text().splitlines() if file.exists() else []


# On many systems sh is one of the others.
SHELLS = {os.path.realpath(path): name for name in ("sh", "dash", "bash") if (path := shutil.which(name))}


@pytest.fixture(
    params=[
        pytest.param(name, marks=pytest.mark.nightly if number else ()) for number, name in enumerate(SHELLS.values())
    ]
)
def machine(request, tmp_path) -> Machine:
    """Return a machine without Python and Java, whose user is not root."""
    machine = Machine(tmp_path, request.param)
    machine.command("bin/id", "echo 1000")
    return machine


@pytest.fixture
def ready(machine) -> Machine:
    """Return a machine with a Python that makes environments and a Java that Spark can use."""
    machine.command("bin/python3", FAKE_PYTHON)
    machine.java("bin/java", "17.0.1")
    return machine


def test_script_is_posix():
    """The script parses as plain sh, without features of bash."""
    shell = shutil.which("dash") or "sh"
    assert subprocess.run([shell, "-n", ROOT / "task"], check=False).returncode == 0
    assert os.access(ROOT / "task", os.X_OK)


def test_alone_it_lists_its_recipes(machine):
    """``./task`` alone prints every recipe with one line about it, and needs neither Python nor Java."""
    done = machine.run()
    recipes = [line.split(maxsplit=1) for line in done.stdout.splitlines()[1:]]
    assert (done.returncode, done.stderr) == (0, "")
    assert {"setup", "demo", "test", "lint", "format", "bench", "docs", "lock", "clean"} <= {
        name for name, _ in recipes
    }


def test_unknown_recipe_is_a_usage_error(machine):
    """An unknown recipe ends with 2 and the list on stderr."""
    done = machine.run("dmeo")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no recipe dmeo" in done.stderr
    assert "  demo " in done.stderr


def test_missing_python_is_reported_with_the_command_that_installs_it(machine):
    """Without Python there is one clear line."""
    machine.command("bin/apt-get", "exit 1")
    machine.command("bin/python3", "exit 1")
    done = machine.run("lint")
    assert done.returncode == 1
    assert done.stderr.endswith("no Python 3.11 or newer on PATH; run: sudo apt-get install python3\n")


def test_missing_java_is_reported_with_the_command_that_installs_it(ready):
    """A Java that is too old for Spark does not count: the demo does not start, and the command to run is printed."""
    ready.command("bin/dnf", "exit 1")
    ready.java("bin/java", "1.8.0_392")
    done = ready.run("demo")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Java 17 or newer" in done.stderr
    assert done.stderr.endswith("run: sudo dnf install java-latest-openjdk-headless\n")


def test_root_gets_java_installed(ready):
    """As root on Debian the headless Java is installed, after apt updated its lists."""
    (ready.folder / "bin/java").unlink()
    ready.command("bin/id", "echo 0")
    script = f'echo "$*" >>{ready.folder}/apt.log; case "$*" in *install*) echo apt; . {ready.folder}/install ;; esac'
    ready.command("bin/apt-get", script)
    ready.java("newer/java", "21")
    ready.command("install", f"cp {ready.folder}/newer/java {ready.folder}/bin/java")
    done = ready.run("setup")
    assert (done.returncode, done.stdout) == (0, "")
    assert [line.split()[0] for line in ready.logged("apt.log")] == ["update", "install"]
    assert ready.logged("apt.log")[1].endswith("default-jre-headless")


@pytest.mark.parametrize(
    ("home", "path", "chosen"),
    [("17.0.9", "21", "home"), ("11.0.2", "21", ""), ("11.0.2", "1.8.0", "jvm/new")],
)
def test_spark_gets_an_installed_java(ready, home, path, chosen):
    """JAVA_HOME comes first, then PATH, then the system's folder. A Java that is too old is skipped."""
    ready.java("home/bin/java", home)
    ready.java("bin/java", path)
    ready.java("jvm/new/bin/java", "25")
    ready.variables["JAVA_HOME"] = f"{ready.folder}/home"
    ready.run("setup")
    ready.command(".venv/bin/ddbio", 'echo "${JAVA_HOME-}"')
    assert ready.run("demo").stdout.strip() == (f"{ready.folder}/{chosen}" if chosen else "")


def test_stdout_is_the_recipes(ready):
    """Words after the recipe reach the program unchanged. Messages of set-up are not on stdout."""
    ready.run("setup")
    ready.command(".venv/bin/ddbio", 'printf "%s|" "$@"')
    (ready.folder / "requirements.lock").write_text("changed")
    done = ready.run("demo", "--json", "two words", "")
    assert (done.returncode, done.stdout) == (0, "demo|--json|two words||")
    assert "installing requirements.lock" in done.stderr


def test_lint_needs_no_java(ready):
    """Text can be edited and checked without Java."""
    (ready.folder / "bin/java").unlink()
    for name in ("ruff", "mypy", "basedpyright", "lint-imports", "numpydoc"):
        ready.command(f"tools/{name}", f"echo {name} $1")
    (ready.folder / "ddbio").mkdir()
    (ready.folder / "ddbio/one.py").touch()
    ready.run("setup")
    for tool in (ready.folder / "tools").iterdir():
        shutil.copy(tool, ready.folder / ".venv/bin")
    done = ready.run("lint")
    assert done.returncode == 0
    assert done.stdout.split("\n")[:-1] == [
        "ruff check",
        "ruff format",
        "mypy ddbio",
        "basedpyright --project",
        "lint-imports --no-logo",
        "numpydoc lint",
    ]


def test_setup_is_quick_when_nothing_changed(ready):
    """The second set-up calls neither venv nor pip."""
    assert ready.run("setup").returncode == 0
    before = ready.logged("venv.log"), ready.logged("pip.log")
    assert ready.run("setup").stderr == ""
    assert (ready.logged("venv.log"), ready.logged("pip.log")) == before
    assert any("--require-hashes" in line for line in before[1])


def test_changed_lock_is_installed_in_place(ready):
    """A new lock is installed into the existing environment."""
    ready.run("setup")
    installs = len(ready.logged("pip.log"))
    (ready.folder / "requirements.lock").write_text("changed")
    assert ready.run("setup").returncode == 0
    assert len(ready.logged("venv.log")) == 1
    assert len(ready.logged("pip.log")) == 2 * installs


@pytest.mark.parametrize("lost", ["stamp", "bin/python"])
def test_an_incomplete_environment_is_made_again(ready, lost):
    """An environment without its stamp or its Python is incomplete or damaged, and is replaced."""
    ready.run("setup")
    (ready.folder / ".venv" / lost).unlink()
    (ready.folder / ".venv/left-over").touch()
    assert ready.run("setup").returncode == 0
    assert len(ready.logged("venv.log")) == 2
    assert not (ready.folder / ".venv/left-over").exists()


def test_failed_installation_leaves_no_stamp(ready):
    """When pip fails, set-up fails, and the next one starts again."""
    ready.command("bin/python3", FAKE_PYTHON.replace(">>pip.log", "&& exit 1"))
    assert ready.run("setup").returncode == 1
    ready.command("bin/python3", FAKE_PYTHON)
    assert ready.run("setup").returncode == 0
    assert len(ready.logged("venv.log")) == 2


def test_failed_update_is_not_forgotten(ready):
    """An environment whose update failed is not trusted when the old lock comes back."""
    ready.run("setup")
    ready.command(".venv/bin/python", FAKE_PYTHON.replace(">>pip.log", "&& exit 1"))
    (ready.folder / "requirements.lock").write_text("changed")
    assert ready.run("setup").returncode == 1
    (ready.folder / "requirements.lock").write_text("requirements.lock")
    assert ready.run("setup").returncode == 0
    assert len(ready.logged("venv.log")) == 2


# Refuses ensurepip until a file of that name exists, and can make an environment without pip.
BARE_PYTHON = """\
case "$*" in
  *ensurepip*) [ -e ensurepip ]; exit ;;
  '-m venv --without-pip '*) set -- -m venv "$4" ;;
esac
"""


def test_without_ensurepip_root_installs_it(ready):
    """As root on Debian the package of that Python version is installed."""
    ready.command("bin/python3", BARE_PYTHON + FAKE_PYTHON)
    ready.command("bin/id", "echo 0")
    ready.command("bin/apt-get", 'echo "$*" >>apt.log; : >ensurepip')
    assert ready.run("setup").returncode == 0
    assert ready.logged("apt.log")[-1].endswith(" python3-venv")


@pytest.mark.parametrize("program", ["virtualenv", "uv"])
def test_without_ensurepip_another_program_makes_the_environment(ready, program):
    """Without root, virtualenv or uv makes the environment, with the found Python."""
    ready.command("bin/python3", BARE_PYTHON + FAKE_PYTHON)
    ready.command(f"bin/{program}", 'echo "$*" >>calls.log; python3 -m venv .venv')
    assert ready.run("setup").returncode == 0
    assert ready.logged("calls.log")[0].endswith("--python python3 .venv")


def test_without_ensurepip_any_pip_will_do(ready):
    """A pip from outside is installed into an environment without one."""
    ready.command("bin/python3", BARE_PYTHON + FAKE_PYTHON)
    assert ready.run("setup").returncode == 0
    assert "-m pip --python .venv/bin/python install --quiet pip" in ready.logged("pip.log")


def test_without_any_program_the_command_to_run_is_printed(ready):
    """If no program can make an environment with pip, the last line is the command that fixes this."""
    ready.command("bin/python3", BARE_PYTHON + FAKE_PYTHON.replace('echo "$*" >>pip.log', "exit 1"))
    ready.command("bin/apt-get", "exit 1")
    done = ready.run("setup")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith("run: sudo apt-get install python3-venv\n")


@pytest.fixture
def sparks(ready) -> Machine:
    """Return a machine with the lock of another Spark, whose environments record the arguments of pytest."""
    for name in ("cat", "grep", "mktemp"):
        (ready.folder / "bin" / name).unlink(missing_ok=True)
        (ready.folder / "bin" / name).symlink_to(shutil.which(name))
    (ready.folder / "requirements-spark35.lock").write_text("spark35")
    return ready


def test_other_sparks_have_their_own_environments(sparks):
    """Each named version has an environment by its own lock, in which its tests run. The first lock has Spark 4.0."""
    script = FAKE_PYTHON.replace("'-m pip'*)", "'-m tests.rerun'*) echo \"$0 $*\" >>pytest.log ;;\n  '-m pip'*)")
    sparks.command("bin/python3", script)
    done = sparks.run("versions", "spark35", "spark40")
    assert done.returncode == 0, done.stderr
    first, second = sparks.logged("pytest.log")
    assert first.startswith(".venv-spark35/bin/python -m tests.rerun") and "tests/versions" in first  # noqa: PT018 - one line
    assert second.startswith(".venv/bin/python -m tests.rerun")
    assert any("requirements-spark35.lock" in line for line in sparks.logged("pip.log"))


@pytest.mark.parametrize(
    ("output", "code"), [("NewConnectionError: no route", 75), ("hashes do not match the requirements file", 1)]
)
def test_an_unreachable_registry_is_reported(sparks, output, code):
    """An unreachable registry ends with 75 and the skipped tests. Any other failed installation is an error."""
    broken = f"'-m pip'*requirements-spark35.lock) echo '{output}' >&2; exit 1 ;;\n  '-m pip'*)"
    sparks.command("bin/python3", FAKE_PYTHON.replace("'-m pip'*)", broken))
    done = sparks.run("versions", "spark35")
    assert (done.returncode, output in done.stderr) == (code, True)
    assert ("NOT RUN: tests/versions on spark35" in done.stderr) == (code == 75)
    assert not sparks.logged("pytest.log")


def test_failed_tests_of_a_version_fail(sparks):
    """Tests that fail on one version fail the recipe, and the other versions still run."""
    fails = "'-m tests.rerun'*) echo \"$0\" >>pytest.log; exit 1 ;;\n  '-m pip'*)"
    sparks.command("bin/python3", FAKE_PYTHON.replace("'-m pip'*)", fails))
    assert sparks.run("versions", "spark35", "spark40").returncode == 1
    assert len(sparks.logged("pytest.log")) == 2
    assert "there is no requirements-gone.lock" in sparks.run("versions", "gone").stderr


def test_some_tests_of_a_version(sparks):
    """Files after ``--`` run instead of all. Tests without their jars are reported, and end with 75 if none failed."""
    ends = "case $0 in *35*) exit 75 ;; *) exit {} ;; esac"
    pytest_call = f"'-m tests.rerun'*) echo \"$0 $*\" >>pytest.log; {ends} ;;\n  '-m pip'*)"
    for code, exit_code in ((0, 75), (1, 1)):
        sparks.command("bin/python3", FAKE_PYTHON.replace("'-m pip'*)", pytest_call.replace("{}", str(code))))
        shutil.rmtree(sparks.folder / ".venv", ignore_errors=True)
        shutil.rmtree(sparks.folder / ".venv-spark35", ignore_errors=True)
        done = sparks.run("versions", "spark35", "spark40", "--", "tests/versions/test_lakes.py", "-x")
        assert done.returncode == exit_code
        assert "NOT RUN: tests of tests/versions on spark35 whose jars" in done.stderr
        assert "on spark40 whose jars" not in done.stderr
    logged = sparks.logged("pytest.log")
    assert len(logged) == 4
    assert all(line.endswith("-m not nightly tests/versions/test_lakes.py -x") for line in logged)


def test_other_pythons_have_their_own_environments(ready):
    """Each Python on PATH runs the tests in its environment of the first lock; the recipe names one that is missing."""
    script = FAKE_PYTHON.replace("'-m pip'*)", "'-m tests.rerun'*) echo \"$0 $*\" >>pytest.log ;;\n  '-m pip'*)")
    for name in ("python3", "python3.13"):
        ready.command(f"bin/{name}", script)
    done = ready.run("pythons", "python3.13", "python3.14")
    assert (done.returncode, "NOT RUN: tests on python3.14" in done.stderr) == (75, True)
    (line,) = ready.logged("pytest.log")
    assert line == ".venv-python3.13/bin/python -m tests.rerun -m not nightly tests/items tests/scan"
    assert ready.run("pythons", "python3.13", "--", "tests/lake", "-x").returncode == 0
    assert ready.logged("pytest.log")[-1].endswith("-m not nightly tests/lake -x")


def test_failed_tests_on_a_python_fail(ready):
    """Tests that fail on one Python fail the recipe, and the others run."""
    fails = FAKE_PYTHON.replace("'-m pip'*)", "'-m tests.rerun'*) echo \"$0\" >>pytest.log; exit 1 ;;\n  '-m pip'*)")
    for name in ("python3", "python3.12", "python3.13"):
        ready.command(f"bin/{name}", fails)
    assert ready.run("pythons", "python3.12", "python3.13").returncode == 1
    assert len(ready.logged("pytest.log")) == 2
    broken = FAKE_PYTHON.replace("'-m pip'*)", "'-m pip'*) exit 1 ;;\n  '-m no'*)")
    ready.command("bin/python3.14", broken)
    assert ready.run("pythons", "python3.14").returncode == 1
    assert len(ready.logged("pytest.log")) == 2


def test_the_tiers_of_tests(ready):
    """``./task test`` excludes nightly tests. ``./task nightly`` runs all, with seeds that it prints."""
    script = "'-m tests.rerun'*) echo \"$DDBIO_TEST_SEED|$*\" >>pytest.log ;;\n  '-m pip'*)"
    ready.command("bin/python3", FAKE_PYTHON.replace("'-m pip'*)", script))
    words = "-m tests.rerun --numprocesses auto --dist loadfile -m"
    assert ready.run("test", "tests/core", "-x").returncode == 0
    ready.variables["DDBIO_TEST_SEED"] = "7"
    done = ready.run("nightly", "tests", "--", "-x")
    assert (done.returncode, "repeat it: DDBIO_TEST_SEED=7 ./task nightly tests" in done.stderr) == (0, True)
    assert ready.logged("pytest.log") == [
        f"|{words} not nightly tests/core -x",
        f"7|{words}  --ignore tests/versions --hypothesis-seed=7 -x",
    ]
    assert ready.run("nightly", "tets").returncode == 1


@pytest.mark.parametrize(
    ("failing", "code", "verdict"),
    [
        ("nothing", 0, 0),
        ("lint", 1, 1),
        ("bench", 1, 1),
        ("site", 1, 1),
        ("versions", 1, 1),
        ("versions", 75, 0),
        ("test", 1, 1),
        ("test", 5, 1),
    ],
)
@pytest.mark.skipif(not shutil.which("bash"), reason="the CI machine has bash; this one has not")
def test_ci_fails_with_any_part(tmp_path, failing, code, verdict):
    """CI runs every part, regardless of the others. A part that fails, and a run without tests, fails it.

    A version that could not be fetched is reported, and is not a failure.
    """
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", tmp_path / ".ci/run")
    task = tmp_path / "task"
    task.write_text(f'#!/bin/sh\necho "$1" >>parts.log\n[ "$1" != {failing} ] || exit {code}\n')
    task.chmod(0o755)
    done = subprocess.run(["bash", tmp_path / ".ci/run"], cwd="/", capture_output=True, text=True, check=False)
    assert (done.returncode, "could not fetch was not tested" in done.stdout) == (verdict, code == 75)
    assert set((tmp_path / "parts.log").read_text().split()) == {"lint", "bench", "site", "versions", "test"}


def test_asv_results_are_stored_under_their_commit(ready):
    """Results of asv in an existing environment are stored, since ``./task bench`` passes the commit."""
    ready.run("setup")
    ready.command("bin/git", "echo 0123abc")
    ready.command(".venv/bin/asv", 'echo "$*" >>asv.log')
    for words in ([], ["run", "-b", "Decode"], ["run", "--set-commit-hash=1"], ["publish"]):
        assert ready.run("bench", *words).returncode == 0
    assert ready.logged("asv.log") == [
        "machine --yes",
        "run --quick --python=same --show-stderr --set-commit-hash=0123abc",
        "machine --yes",
        "run -b Decode --set-commit-hash=0123abc",
        "machine --yes",
        "run --set-commit-hash=1",
        "machine --yes",
        "publish",
    ]


def test_the_duration_of_all_benchmarks_is_stated(machine):
    """The list of recipes states that timing every benchmark takes about an hour, not some minutes."""
    (line,) = (line for line in machine.run().stdout.splitlines() if line.split()[:1] == ["bench"])
    assert "about an hour" in line


AUDITS = [
    ("clean", "No known vulnerabilities found", 0, 0, "No known"),
    ("vulnerable", "Found 1 known vulnerability in 1 package\nurllib3 1.0 CVE-2020-1", 1, 1, "CVE-2020-1"),
    ("out of reach", "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='h')", 1, 75, "NOT AUDITED"),
    ("refused", "ERROR:pip_audit._cli:Could not connect to PyPI's vulnerability feed", 1, 75, "NOT AUDITED"),
    (
        "unknown",
        "No known vulnerabilities found\nDependency not found on PyPI and could not be audited",
        0,
        75,
        "NOT AUDITED",
    ),
    ("both", "Found 2 known vulnerabilities in 1 package\nb could not be audited: b", 1, 1, "Found 2"),
    ("broken", "error: no such option", 2, 1, "no such option"),
]


@pytest.mark.parametrize(
    ("output", "ended", "code", "expected"), [audit[1:] for audit in AUDITS], ids=[audit[0] for audit in AUDITS]
)
def test_an_audit_reports_missing_checks(ready, output, ended, code, expected):
    """Vulnerabilities fail it.

    An unavailable service, or one that knows no library, ends it with 75, never with success.
    """
    for name in ("cat", "grep", "mktemp", "tail"):
        (ready.folder / "bin" / name).unlink(missing_ok=True)
        (ready.folder / "bin" / name).symlink_to(shutil.which(name))
    for name in ("requirements-audit.lock", "requirements-floor.lock"):
        (ready.folder / name).write_text(name)
    ready.run("audit")
    (ready.folder / "said").write_text(f"{output}\n")
    ready.command(".venv-audit/bin/pip-audit", f'echo "$*" >>audit.log; cat said; exit {ended}')
    done = ready.run("audit", "--", "-s", "osv")
    assert (done.returncode, expected in done.stdout + done.stderr) == (code, True)
    asked = [words.rpartition("--requirement ")[2] for words in ready.logged("audit.log")]
    assert asked == [
        f"{name} -s osv" for name in ("requirements-audit.lock", "requirements-ministack.lock", "requirements.lock")
    ]
    assert ready.run("audit", "requirements-floor.lock").returncode == code
    assert ready.logged("audit.log")[-1].endswith("--requirement requirements-floor.lock")
