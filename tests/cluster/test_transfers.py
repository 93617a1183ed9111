"""The table of transfers: published numbers, by format, and its command."""

from __future__ import annotations

import math
from typing import Any

import pytest
import tyro

from dtjax import codecs
from dtjax.cli import transfers
from dtjax.cluster.transfers import transfer_table
from dtjax.training.models import resnet50_shapes

SIZES = [math.prod(shape) for _, shape in resnet50_shapes()]


def command(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    tyro.cli(transfers.TransferTable, args=list(arguments)).run()
    return capsys.readouterr().out


def test_the_published_milliseconds() -> None:
    table = transfer_table()
    lines = str(table).splitlines()
    assert [line.split()[-1] for line in lines[2:-1]] == ["320", "160", "80", "20", "10", "6.4"]
    assert lines[-1] == "8 fp32 senders on one shared ingress: at least 2,560 ms"
    assert repr(table) == str(table)
    assert [row.bytes for row in table.rows[::5]] == [400_000_000, 8_000_000]
    assert [row.bits_per_entry for row in table.rows] == [32, 16, 8, 2, 1, 0.64]
    seconds = [0.32, 0.16, 0.08, 0.02, 0.01, 0.0064]
    assert [row.seconds for row in table.rows] == pytest.approx(seconds, rel=1e-15)
    assert table.ingress_seconds == pytest.approx(2.56, rel=1e-15)


@pytest.mark.parametrize(
    ("kept", "published"), [(0.01, 2_044_264), (0.1, 20_446_616), (0.25, 51_118_160)]
)
def test_the_published_bytes_of_resnet50(kept: float, published: int) -> None:
    fp32, fp16, int8, two, one, top = transfer_table(SIZES, kept=kept).rows
    assert (fp32.bytes, two.bytes, one.bytes) == (102_236_324, 6_389_771, 3_194_886)
    assert (fp16.bytes, int8.bytes) == (51_118_162, 25_559_081)
    assert top.bytes == published


def test_scales_go_with_the_quantised_formats_only() -> None:
    bare, scaled = transfer_table(SIZES), transfer_table(SIZES, scales=True)
    more = [b.bits - a.bits for a, b in zip(bare.rows, scaled.rows, strict=True)]
    assert more == [0, 0, 32 * 161, 32 * 161, 32 * 161, 0]
    counted = transfer_table(sum(SIZES), tensors=161, scales=True)
    assert [row.bits for row in counted.rows[:5]] == [row.bits for row in scaled.rows[:5]]
    assert transfer_table(sum(SIZES), tensors=161).rows == transfer_table(sum(SIZES)).rows


@pytest.mark.parametrize("code", codecs.INDEX_CODES)
def test_index_codes(code: str) -> None:
    table = transfer_table(SIZES, indices=code)
    kept = [max(1, int(0.01 * size)) for size in SIZES]
    pairs = zip(SIZES, kept, strict=True)
    expected = 32 * sum(kept) + sum(codecs.index_bits(code, d, k) for d, k in pairs)
    assert table.rows[-1].bits == expected
    assert code in table.rows[-1].name
    assert ("upper bound" in str(table)) == (code == "golomb")


def test_small_tensors_send_at_least_one_entry() -> None:
    assert transfer_table([1, 10, 250]).rows[-1].bits == 64 * (1 + 1 + 2)
    assert transfer_table(1, indices="packed").rows[-1].bits == 32


def test_overhead_is_exact_and_everywhere() -> None:
    bare, more = transfer_table(), transfer_table(overhead=0.05)
    assert [row.bits for row in more.rows] == [row.bits * 105 // 100 for row in bare.rows]
    assert more.rows[0].seconds == pytest.approx(0.336)
    assert more.ingress_seconds == pytest.approx(2.688)
    assert "5 % of the payload for the protocol included" in str(more)
    assert transfer_table(3, overhead=0.1).rows[4].bits == 4  # 3.3, rounded up
    assert transfer_table(3, overhead=0.1).rows[4].bytes == 1


def test_one_sender_and_long_times() -> None:
    text = str(transfer_table(senders=1, bandwidth=1e6))
    assert text.endswith("1 fp32 sender on one shared ingress: at least 3,200,000 ms")
    assert "e+" not in text


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(capsys).strip() == str(transfer_table())
    options = "--scales --indices golomb --kept 0.1 --overhead 0.05 --bandwidth 1e9 --senders 3"
    given = ["--parameters", *map(str, SIZES), *options.split()]
    expected = transfer_table(
        SIZES, scales=True, indices="golomb", kept=0.1, overhead=0.05, bandwidth=1e9, senders=3
    )
    assert command(capsys, *given).strip() == str(expected)
    assert "25559081" in command(capsys, "--parameters", "25559081", "--tensors", "161")
    with pytest.raises(ValueError, match="transfer_table: parameters must hold a number"):
        transfers.TransferTable(parameters=()).run()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"parameters": 0}, "parameters must be an integer 1 or more, got 0"),
        ({"parameters": 1e8}, "parameters must be an integer 1 or more, got 100000000.0"),
        ({"parameters": []}, r"parameters must hold the size of a tensor, got \[\]"),
        ({"parameters": [3, 0]}, "parameters must be an integer 1 or more, got 0"),
        ({"parameters": [3, 4], "tensors": 3}, "tensors must be the number of sizes .* 2,"),
        ({"tensors": 0}, "tensors must be an integer between 1 and parameters=100000000, got 0"),
        ({"bandwidth": 0.0}, "bandwidth must be positive and finite, got 0.0"),
        ({"senders": 0}, "senders must be an integer 1 or more, got 0"),
        ({"indices": "int16"}, "indices must be one of .*did you mean 'int32'"),
        ({"kept": 0.0}, "kept must be above 0 and at most 1, got 0.0"),
        ({"kept": 1.1}, "kept must be above 0 and at most 1, got 1.1"),
        ({"overhead": -0.1}, "overhead must be non-negative and finite, got -0.1"),
        ({"parameters": 3 * 10**9}, "indices must be another .* 3000000000 .*, got 'int32'"),
    ],
)
def test_errors(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^transfer_table: {message}"):
        transfer_table(**arguments)
