"""The command line: the worked schedules as text, errors as one line, Gantt charts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import dtjax
import oracle
from cli_output import TIMES, rows, simulate
from dtjax import __main__
from dtjax.cli import main


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the settings of this process alone: devices, compilation cache."""
    monkeypatch.setattr("dtjax.experiment.study.prepare", lambda **settings: None)


# The worked numbers: options, (k, distinct, cancel, bound), update times, gradients used, a fact.
Worked = tuple[str, tuple[int, bool, bool, float | None], str, int, tuple[str, float]]
UTILISATION, CANCELLED = "utilisation", "cancelled seconds, share"
BUFFERED = "gradients waiting for the next update"
WORKED: dict[str, Worked] = {
    "bsp": ("", (3, True, False, None), "7 14", 6, (UTILISATION, 28 / 45)),
    "asp": ("", (1, False, False, None), "2 4 5 6 7 8 10 10 12 14 14 15", 12, (BUFFERED, 0)),
    "ssp": ("--bound 1", (1, False, False, 1), "2 4 5 7 9 10 14 15", 8, (BUFFERED, 0)),
    "k-bsp": ("--k 2", (2, True, True, None), "5 10 15", 6, (CANCELLED, 15 / 45)),
    "k-batch-bsp": ("--k 2", (2, False, True, None), "4 8 12", 6, (BUFFERED, 1)),
    "k-asp": ("--k 2", (2, True, False, None), "5 7 10 14", 8, (BUFFERED, 1)),
    "k-batch-asp": ("--k 2", (2, False, False, None), "4 6 8 10 14 15", 12, (BUFFERED, 0)),
}


@pytest.mark.parametrize("policy", WORKED)
def test_the_worked_schedules(capsys: pytest.CaptureFixture[str], policy: str) -> None:
    options, (k, distinct, cancel, bound), times, used, (name, fact) = WORKED[policy]
    text = simulate(capsys, "--policy", policy, *options.split(), *TIMES, "--until", "15")
    updates, workers, sums = rows(text)
    assert [row[1] for row in updates] == times.split()
    assert sums["gradients used"] == used
    assert sums[name] == pytest.approx(fact, abs=1e-6)
    if policy == "asp":
        assert updates[4] == ["5", "7", "2.0", "4"]  # the third worker's first: staleness 4
    # Everything else, as the reference has it.
    table = [[seconds] * 10 for seconds in (2, 5, 7)]
    expected = oracle.schedule(table, k=k, distinct=distinct, cancel=cancel, bound=bound, until=15)
    assert updates == [
        [
            str(i + 1),
            str(update.time),
            " ".join(f"{g.worker}.{g.step}" for g in update.gradients),
            " ".join(str(g.staleness) for g in update.gradients),
        ]
        for i, update in enumerate(expected.updates)
    ]
    columns = (
        "started",
        "useful_count",
        "useful",
        "discarded",
        "cancelled",
        "in_flight",
        "waiting",
    )
    table_ = [[w, *(getattr(expected, c)[w] for c in columns)] for w in range(3)]
    assert [[float(cell) for cell in row] for row in workers] == table_
    assert sums["seconds"] == 15
    assert sums["updates"] == len(updates)
    assert sums[BUFFERED] == expected.buffered
    assert sums["gradients a second"] == pytest.approx(used / 15, abs=1e-6)
    assert sums["updates a second"] == pytest.approx(len(updates) / 15, abs=1e-6)
    stopped = sum(expected.cancelled_count) / sum(expected.started)
    assert sums["cancelled computations, share"] == pytest.approx(stopped, abs=1e-6)


def test_times_of_long_runs_keep_their_digits(capsys: pytest.CaptureFixture[str]) -> None:
    times = ["--compute-times", "1000.5", "2e6", "3e6"]
    text = simulate(capsys, *times, "--updates", "64")
    assert [float(row[1]) for row in rows(text)[0]] == [1000.5 * (i + 1) for i in range(64)]


def test_random_times_are_fixed_by_the_seed(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--workers", "3", "--mean", "0.5", "--shift", "0.25", "--updates", "5"]
    first = simulate(capsys, *options)
    assert first == simulate(capsys, *options) != simulate(capsys, *options, "--seed", "1")
    assert len(rows(first)[0]) == 5
    assert float(rows(first)[0][0][1]) > 0.25


def test_named_laws_and_policies_are_those_of_python(capsys: pytest.CaptureFixture[str]) -> None:
    long = ["--law", "scaled(deterministic(1), [2, 5, 7])", "--policy", "k_asp(2)"]
    short = ["--compute-times", "2", "5", "7", "--policy", "k-asp", "--k", "2"]
    assert simulate(capsys, *long, "--until", "15") == simulate(capsys, *short, "--until", "15")
    shifted = ["--workers", "3", "--updates", "5"]
    law = simulate(capsys, *shifted, "--law", "exponential:2,shift=0.5")
    assert law == simulate(capsys, *shifted, "--mean", "2", "--shift", "0.5")


def test_many_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """ASP with four exponential workers: a quarter of a second an update, staleness 3."""
    ends = ["--workers", "4", "--runs", "64", "--until", "500"]
    text = simulate(capsys, *ends)
    found = {line[:26].strip(): line[26:].split() for line in text.splitlines()[2:-1]}
    for name, expected in (("seconds an update", 0.25), ("staleness, mean", 3.0)):
        mean, half = float(found[name][0]), float(found[name][1].removeprefix("+-"))
        assert abs(mean - expected) < 2.5 * half + 0.02  # 5 standard errors, and the fresh start
    assert float(found["seconds"][0]) == 500
    assert "64 runs: reached `until`" in text


def test_both_ends(capsys: pytest.CaptureFixture[str]) -> None:
    few = rows(simulate(capsys, *TIMES, "--until", "1000", "--updates", "64"))
    assert len(few[0]) == few[2]["updates"] == 64
    assert few[2]["seconds"] == float(few[0][-1][1]) < 100
    none = simulate(capsys, *TIMES, "--until", "1.5")
    assert "updates: 0\n" in none and "seconds: 1.5\n" in none
    many = rows(simulate(capsys, *TIMES, "--until", "140"))  # more rows than the first guess
    assert len(many[0]) == 70 + 28 + 20


def test_a_table(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("2, 2, 2\n5,5\n\n7,\n")  # logs of unequal lengths
    text = simulate(capsys, "--table", str(path), "--updates", "20")
    assert [row[1] for row in rows(text)[0]] == ["2", "4", "5", "6"]
    assert "stopped early: a computation started whose duration is missing" in text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("2,x\n", "table must be a CSV file of numbers"),
        ("worker,seconds\n0,2\n", "table must be a CSV file of numbers"),
        ("", "table must hold a row a worker"),
        ("\n \n", "table must hold a row a worker"),
        ("2,3\n,\n", "table must hold a time in the first column of each row"),
        ("2,-1\n", r"table\[0, 1\] must be positive, got -1\.0"),
        ("2,0\n", r"table\[0, 1\] must be positive, got 0\.0"),
        ("2,,3\n", r"table\[0, 1\] must not have a gap"),
        ("2,nan,3\n", r"table\[0, 1\] must not have a gap"),
        (b"\xff\xfe\x00", "table must be a CSV file of numbers"),
        (None, "table must be a CSV file of numbers .*No such file"),
    ],
)
def test_bad_tables(tmp_path: Path, content: str | bytes | None, message: str) -> None:
    path = tmp_path / "log.csv"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=message):
        main.main(["simulate", "--table", str(path), "--updates", "3"])


BAD = [
    ("--policy k-asp --compute-times 2 5", r"policy must be k_asp\(k, max_staleness=None\)"),
    ("--policy ssp --compute-times 2 5", r"policy must be ssp\(bound, max_staleness=None\)"),
    ("--policy k-asp --k 3 --compute-times 2 5", "k must be at most the number of workers, n=2"),
    ("--policy k-asp --k 0 --compute-times 2 5", "k must be an integer 1 or more, got 0"),
    ("--policy asp --k 2 --compute-times 2 5", "k is not an option of asp, got 2"),
    ("--policy bsp --max-staleness 2 --compute-times 2 5", "max_staleness is not an option of bsp"),
    ("--policy asp --no-preempt --compute-times 2 5", "preempt is not an option of asp"),
    ("--policy ssp --bound -1 --compute-times 2 5", "bound must be an integer 0 or more, got -1"),
    ("--compute-times 2 -5", "seconds must be positive and finite, got -5"),
    ("--compute-times 2 nan", "seconds must be positive and finite, got nan"),
    ("--policy k-async --workers 2", "policy must be one of .*did you mean 'k_asp'.*'k_async'"),
    ("--policy k-asp:2 --k 3 --workers 4", r"policy must be k_asp\(k, max_staleness=None\)"),
    ("--policy 3 --workers 4", "policy must be NAME, NAME:NUMBERS or NAME.NUMBERS., got '3'"),
    ("--law pareto:2 --workers 4", r"law must be pareto\(alpha, minimum\), got 'pareto:2'"),
    ("--law pareto:2,-1 --workers 4", r"pareto: minimum must be positive and finite, got -1\.0"),
    ("--law paretto:2,1 --workers 4", "law must be one of .*did you mean 'pareto'"),
    ("--law pareto:2,1", "workers must be given: the law is for any number of workers"),
    ("--law pareto:2,1 --workers 4 --mean 2", r"mean must not be given with --law, got 2\.0"),
    ("--law pareto:2,1 --table log.csv", "compute times must be given one of .*'2 of them'"),
    ("--law __import__('os') --workers 4", "law must be one of .*got '__import__'"),
    ("--policy asp", "compute times must be given one of .*, got '0 of them'"),
    ("--compute-times 2 --workers 3", "compute times must be given one of .*, got '2 of them'"),
    ("--workers 0", "workers must be an integer 1 or more, got 0"),
    ("--workers 2 --mean 0", "mean must be positive and finite, got 0"),
    ("--workers 2 --shift -1", "shift must be non-negative and finite, got -1"),
    ("--workers 2 --updates 0", "updates must be an integer .*1.*, got 0"),
    ("--workers 2 --until 0", "until must be .*positive"),
    ("--workers 2 --until nan", "until must be .*positive"),
    ("--workers 2 --until inf", "until must be .*finite.*got inf"),
    ("--compute-times 1 2 --mean 3", "mean must not be given without --workers, got 3"),
    ("--workers 2 --figure a.xyz", "figure must end in .png, .pdf or .svg, got 'a.xyz'"),
    ("--workers 2 --runs 0", "runs must be an integer 1 or more, got 0"),
    ("--workers 2 --runs 3 --figure a.png", "figure must not be given with several runs"),
    ("--workers 2 --seed 99999999999999999999", "seed must be an integer between"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[line for line, _ in BAD])
def test_bad_arguments_are_one_line(
    monkeypatch: pytest.MonkeyPatch, arguments: str, message: str
) -> None:
    monkeypatch.setattr("sys.argv", ["dtjax", "simulate", *arguments.split()])
    with pytest.raises(SystemExit, match=f"error: .*{message}") as stopped:
        __main__.main()
    assert "\n" not in str(stopped.value)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ("simulate --polcy asp", "--policy"),
        ("simulate --k two", "two"),
        ("simulat", "simulate"),
        ("", "simulate"),
    ],
)
def test_options_that_cannot_be_parsed_end_with_a_hint(
    capsys: pytest.CaptureFixture[str], arguments: str, hint: str
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main.main(arguments.split())
    assert stopped.value.code == 2
    assert hint in capsys.readouterr().err


def test_a_figure(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "gantt.png"
    text = simulate(capsys, *TIMES, "--until", "15", "--figure", str(path))
    assert text.endswith(f"wrote {path}\n")
    assert path.read_bytes().startswith(b"\x89PNG")
    (tmp_path / "file").touch()
    for bad in (tmp_path / "file" / "gantt.png", tmp_path / "gantt.xyz"):
        with pytest.raises((ValueError, OSError)):
            simulate(capsys, *TIMES, "--until", "15", "--figure", str(bad))
        assert not bad.exists()


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    main.main(["version"])
    assert capsys.readouterr().out.strip() == dtjax.__version__


def test_help_is_fast() -> None:
    program = """
import runpy, sys
sys.argv = ["dtjax", "simulate", "--help"]
try:
    runpy.run_module("dtjax", run_name="__main__")
except SystemExit as stopped:
    assert stopped.code in (0, None)
heavy = {"jax", "numpy", "flax", "optax", "xarray", "matplotlib"} & set(sys.modules)
print(f"loaded: {sorted(heavy)}")
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert "--compute-times" in done.stdout
    assert done.stdout.endswith("loaded: []\n")
