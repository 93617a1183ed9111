"""The command line with a network: tables, payloads of compressors, errors as one line."""

from __future__ import annotations

import re
from pathlib import Path

import jax
import pytest

from cli_output import TIMES, rows, simulate
from dtjax import __main__
from dtjax.cli import main, network
from dtjax.core import plugins


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the settings of this process alone: devices, compilation cache."""
    monkeypatch.setattr("dtjax.experiment.study.prepare", lambda **settings: None)


EXAMPLES = {
    "bf16": "bf16",
    "compose": "compose(top_k(0.25), natural)",
    "dense_below": "dense-below(top-k(0.25), 5)",
    "dgc": "dgc:0.25",
    "ef21": "ef21(top_k(0.25))",
    "error_feedback": "error_feedback(top_k(0.25))",
    "fp16": "fp16",
    "fp8": "fp8",
    "identity": "identity()",
    "int8": "int8:True",
    "majority_sign": "majority-sign",
    "natural": "natural",
    "one_bit": "one-bit",
    "power_sgd": "power-sgd:1",
    "qsgd": "qsgd:15,bucket=512",
    "random_k": "random-k:0.25",
    "scaled_sign": "scaled_sign",
    "terngrad": "terngrad:None",
    "threshold": "threshold:0.5",
    "top_k": "top-k:0.25",
    "whole": "whole(top_k(k=3, indices='bitmap'))",
}
NETWORK = ["--bandwidth", "1e9", "--payload", "1e9", "--fold", "0.5"]


def test_a_network(capsys: pytest.CaptureFixture[str]) -> None:
    """Pushes of a second and folds of half a second, made by hand in test_gantt.py."""
    text = simulate(capsys, *TIMES, "--until", "16", *NETWORK)
    updates, workers, sums = rows(text)
    assert [row[1] for row in updates] == ["3.5", "6.5", "7.5", "8.5", "11", "13", "14.5"]
    header = next(line for line in text.splitlines() if line.startswith("worker "))
    assert header.split()[-3:] == ["waiting", "communicating", "queueing"]
    assert [[float(cell) for cell in row[-3:]] for row in workers] == [
        [0, 4, 2.5],
        [0, 2, 1],
        [0, 1.5, 0.5],
    ]
    assert sums["communicating seconds, share"] == 7.5 / 48
    assert sums["queueing seconds, share"] == pytest.approx(4 / 48, abs=1e-6)
    assert sums["bytes of a gradient"] == 1.25e8
    assert sums["bytes of the delivered gradients"] == 7 * 1.25e8
    plain = simulate(capsys, *TIMES, "--until", "16")
    assert "communicating" not in plain and "bytes" not in plain


def test_gradients_in_the_buffer_and_discarded_ones_were_sent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """k-ASP with a cut-off at 0: worker 2 comes too late at 7 and at 14; worker 0 waits from 12."""
    options = ["--policy", "k-asp", "--k", "2", "--max-staleness", "0", "--until", "14.5"]
    sums = rows(simulate(capsys, *TIMES, *options, "--bandwidth", "1e30", "--payload", "8"))[2]
    plain = rows(simulate(capsys, *TIMES, *options))[2]
    assert plain == {name: sums[name] for name in plain}
    assert sums["gradients used"] == 4
    assert sums["gradients waiting for the next update"] == 1
    assert sums["bytes of the delivered gradients"] == 4 + 1 + 2


def test_the_server_alone_costs_time(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--policy", "bsp", *TIMES, "--updates", "1", "--encode", "0.5", "--latency", "0.25"]
    updates, _, sums = rows(simulate(capsys, *options, "--fold", "0.125", "--apply", "1"))
    assert updates[0][1] == str(7 + 0.5 + 0.25 + 0.125 + 1)
    assert "bytes of a gradient" not in sums  # nobody has said how many


def test_servers_and_pulls(capsys: pytest.CaptureFixture[str]) -> None:
    """Two ingresses halve the push; the model comes over both; the air delays both ways."""
    options = ["--policy", "bsp", *TIMES, "--updates", "2", "--servers", "2", "--pull", "4e9"]
    text = simulate(capsys, *options, "--bandwidth", "1e9", "--payload", "1e9", "--latency", "0.25")
    round_ = 0.25 + 2 + 7 + 0.5 + 0.25
    assert [float(row[1]) for row in rows(text)[0]] == [round_, 2 * round_]


@pytest.mark.parametrize(
    ("compressor", "bits"),
    [
        (None, 32_000),
        ("identity", 32_000),
        ("fp16", 16_000),
        ("bf16", 16_000),
        ("fp8", 8_000),
        ("int8", 8_032),
        ("one-bit", 1_064),
        ("scaled-sign", 1_032),
        ("majority-sign", 1_000),
        ("terngrad", 2_032),
        ("natural", 9_000),
        ("qsgd:4", 4_064),  # 1 + 3 bits an entry, two buckets
        ("top-k:0.01", 640),
        ("random-k:0.01", 320),
    ],
)
def test_payloads_of_compressors(compressor: str | None, bits: int) -> None:
    options = network.NetworkOptions(bandwidth=1e3, parameters=("1000",), compressor=compressor)
    assert network.network_of(options).payload.tolist() == [bits]


def test_payloads_follow_the_shapes_of_the_tensors() -> None:
    options = network.NetworkOptions(1e3, parameters=("10x4", "7"), compressor="power-sgd:2")
    assert network.network_of(options).payload.tolist() == [32 * (2 * (10 + 4) + 7)]


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_compressor_that_ships_has_a_payload_or_no_fixed_size(name: str) -> None:
    """The text is made of the signature: the numbers of each example, as it is written."""
    compressor = plugins.examples("dtjax.compressors")[name]()
    options = network.NetworkOptions(1e3, parameters=("6x8",), compressor=EXAMPLES[name])
    if name == "threshold":
        with pytest.raises(ValueError, match="compressor must have messages whose size"):
            network.network_of(options)
    else:
        expected = compressor.bits(jax.ShapeDtypeStruct((6, 8), "float32"))
        assert network.network_of(options).payload.tolist() == [expected]


@pytest.mark.slow
def test_many_runs_on_a_network(capsys: pytest.CaptureFixture[str]) -> None:
    ends = ["--workers", "2", "--runs", "4", "--updates", "50"]
    shares = ["communicating seconds, share", "queueing seconds, share"]
    plain = simulate(capsys, *ends)
    linked = simulate(capsys, *ends, "--bandwidth", "1e9", "--payload", "1e8")
    names = [[line[:29].strip() for line in text.splitlines()] for text in (plain, linked)]
    assert [name for name in names[1] if name not in names[0]][-2:] == shares
    assert not set(shares) & set(names[0])


def test_a_transfer_table(capsys: pytest.CaptureFixture[str]) -> None:
    main.main(["transfer-table"])
    text = capsys.readouterr().out
    assert re.search(r"^fp32 +32 +3200000000 +400000000 +320$", text, re.MULTILINE)


def test_a_figure_of_a_network(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "gantt.png"
    text = simulate(capsys, *TIMES, "--until", "15", *NETWORK, "--figure", str(path))
    assert text.endswith(f"wrote {path}\n")
    assert path.read_bytes().startswith(b"\x89PNG")


BAD = [
    ("--workers 2 --payload 8", r"payload must not be given without --bandwidth, got 8\.0"),
    ("--workers 2 --parameters 8", "parameters must not be given without --bandwidth, got .'8',."),
    ("--workers 2 --compressor int8", "compressor must not be given without --bandwidth"),
    ("--workers 2 --servers 2", "servers must not be given without --bandwidth, got 2"),
    ("--workers 2 --pull 8", r"pull must not be given without --bandwidth, got 8\.0"),
    ("--workers 2 --bandwidth 8", "bandwidth must be given with one of --payload.*'none of them'"),
    (
        "--workers 2 --bandwidth 8 --payload 8 --parameters 8",
        "bandwidth must be given with one of --payload and --parameters, got 'both of them'",
    ),
    (
        "--workers 2 --bandwidth 8 --payload 8 --compressor int8",
        "compressor must not be given without --parameters, got 'int8'",
    ),
    ("--workers 2 --bandwidth 0 --payload 8", r"bandwidth must be positive, got 0\.0"),
    ("--workers 2 --bandwidth nan --payload 8", "bandwidth must be positive, got nan"),
    ("--workers 2 --bandwidth 8 --payload -8", r"payload must be non-negative.*got -8\.0"),
    ("--workers 2 --bandwidth 8 --payload inf", "payload must be non-negative and finite, got inf"),
    ("--workers 2 --bandwidth 8 --parameters 0", "parameters must be shapes of tensors, .*got '0'"),
    ("--workers 2 --bandwidth 8 --payload 8 --servers 0", "servers must be an integer 1 or more"),
    ("--workers 2 --bandwidth 8 --payload 8 --pull -1", r"pull must be non-negative.*got -1\.0"),
    ("--workers 2 --latency -1", r"latency must be non-negative and finite, got -1\.0"),
    ("--workers 2 --fold nan", "fold must be non-negative and finite, got nan"),
    ("--workers 2 --apply -1", "apply must be non-negative and finite"),
    ("--workers 2 --encode inf", "encode must be non-negative and finite, got inf"),
    *(
        (f"--workers 2 --bandwidth 8 --parameters 8 --compressor {name}", message)
        for name, message in (
            ("topk:0.01", "compressor must be one of .*did you mean 'top_k'.*, got 'topk'"),
            ("top-k", "ratio or k must be given, and not both"),
            ("qsgd", r"compressor must be qsgd\(levels, bucket=512\), got 'qsgd'"),
            ("qsgd:four", "compressor must be one of .*got 'four'"),
            ("qsgd:0", "levels must be an integer"),
            ("top-k:2", "ratio must be"),
            ("identity:3", r"compressor must be identity\(\), got 'identity:3'"),
            ("power-sgd:2+2", "compressor must be NAME, NAME:NUMBERS or NAME"),
            ("threshold:0.5", "compressor must have messages whose size .*: give --payload"),
        )
    ),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[line for line, _ in BAD])
def test_bad_arguments_are_one_line(
    monkeypatch: pytest.MonkeyPatch, arguments: str, message: str
) -> None:
    monkeypatch.setattr("sys.argv", ["dtjax", "simulate", *arguments.split()])
    with pytest.raises(SystemExit, match=f"error: .*{message}") as stopped:
        __main__.main()
    assert "\n" not in str(stopped.value)
