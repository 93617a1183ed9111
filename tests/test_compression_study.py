"""The studies of compressors at their smoke size: files, numbers, tables, resuming, errors."""

from __future__ import annotations

import json
import math
import os
import re
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest
import xarray as xr

import dtjax
from dtjax import compressors, delays, policies, study
from studies import compression_interaction as interactions
from studies import compression_report as report
from studies import compression_runs as runs

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "studies" / "compression.py"
STALENESS = ROOT / "studies" / "compression_staleness.py"
SMALL = ["--smoke", "--workers", "4", "--runs", "3"]
ALL = ["--compressors", "top-k:0.1", "random-k:0.1", "--memories", "none", "feedback", "ef21"]
SETTINGS = ["identity", "top-k:0.1", "top-k:0.1 + feedback", "top-k:0.1 + ef21"]
SETTINGS += ["random-k:0.1", "random-k:0.1 + feedback"]
PARAMETERS = 64 * 32 + 32 + 32 * 10 + 10


class Ran(NamedTuple):
    """A study that was run."""

    out: Path
    stdout: str
    env: dict[str, str]

    @property
    def whole(self) -> xr.Dataset:
        """Its file."""
        return study.read(next(self.out.glob("*.nc")))


def command(script: Path, out: Path, *arguments: str) -> list[str]:
    return [sys.executable, str(script), "--out", str(out), *arguments]


def run(env: dict[str, str], script: Path, out: Path, *arguments: str) -> Any:
    return subprocess.run(
        command(script, out, *arguments),
        env=env,
        cwd=out.parent,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return os.environ | {
        "XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache")),  # shared: later runs compile less
        "MPLCONFIGDIR": matplotlib.get_cachedir(),
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",  # most of the time is the compiler's
    }


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, env: dict[str, str]) -> Ran:
    out = tmp_path_factory.mktemp("compression") / "out"
    done = run(env, SCRIPT, out, *SMALL, *ALL)
    assert done.returncode == 0, done.stderr
    return Ran(out, done.stdout, env)


@pytest.fixture(scope="module")
def stale(tmp_path_factory: pytest.TempPathFactory, env: dict[str, str]) -> Ran:
    out = tmp_path_factory.mktemp("staleness") / "out"
    done = run(env, STALENESS, out, *SMALL, "--staleness", "2", "--shares", "0.1")
    assert done.returncode == 0, done.stderr
    return Ran(out, done.stdout, env)


def test_the_file(ran: Ran) -> None:
    whole = ran.whole
    sizes = {"setting": 6, "run": 3, "bandwidth": 14, "candidate": 2, "tuning_run": 2}
    assert sizes.items() <= dict(whole.sizes).items()
    assert whole.setting.values.tolist() == SETTINGS
    assert whole.memory.values.tolist() == ["none", "none", "feedback", "ef21", "none", "feedback"]
    for name, dims in {
        "test_loss": ("run", "evaluation"),
        "error": ("run", "evaluation"),
        "seconds": ("bandwidth", "run", "evaluation"),
        "target_seconds": ("bandwidth", "run"),
        "target_updates": ("run",),
        "target_bytes": ("run",),
        "bits": (),
        "rate": (),
    }.items():
        assert set(whole[name].dims) == {"setting", *dims}, name
    assert whole.seconds.attrs["units"] == "s" and whole.bandwidth.attrs["units"] == "bit s-1"
    config = json.loads(whole.attrs["config"])
    assert config["workers"] == 4 and config["runs"] == 3
    assert json.loads(whole.attrs["versions"]) == study.versions()
    assert whole.attrs["study"] == "compression" and whole.attrs["created"]


def test_bits_and_bytes(ran: Ran) -> None:
    whole = ran.whole
    kept = [int(0.1 * size) for size in (64 * 32, 32, 32 * 10, 10)]
    expected = {"identity": 32 * PARAMETERS, "top-k:0.1": 64 * sum(kept)}
    expected["random-k:0.1"] = 32 * sum(kept)
    for setting, text in zip(whole.setting.values, whole.compressor.values, strict=True):
        assert float(whole.bits.sel(setting=setting)) == expected[str(text)]
    reached = whole.target_updates.transpose("setting", "run").values
    gradients = np.where(np.isfinite(reached), reached * 4, np.inf)
    found = whole.target_bytes.transpose("setting", "run").values
    np.testing.assert_allclose(found, gradients * whole.bits.values[:, None] / 8, rtol=1e-12)
    assert (whole.gradients == 4 * whole.updates).all()
    assert np.isfinite(reached[0]).any()


def test_seconds_without_limit_are_those_without_a_network(ran: Ran) -> None:
    whole = ran.whole
    fast = whole.seconds.transpose("setting", "bandwidth", "run", "evaluation").values[:, -1]
    assert np.isinf(whole.bandwidth.values[-1])
    cluster = dtjax.Cluster(n=4, delay=delays.exponential(0.5, shift=0.5))
    root = jax.random.fold_in(jax.random.key(0), 0)
    for place, key in enumerate(jax.random.split(root, 5)[2:]):
        one = dtjax.simulate(key, cluster, policies.bsp(), updates=60)
        times = np.append(0.0, dtjax.seconds(one.trace))
        expected = times[whole.updates.values[0, place].astype(int)]
        np.testing.assert_allclose(fast[:, place], np.broadcast_to(expected, fast[:, place].shape),
                                   rtol=1e-5)  # fmt: skip
        # What is trained on is what the clock makes, whatever it is that times decide.
        mine = runs.bsp_trace(4, 60, 16)
        order = np.argsort(one.trace.worker, axis=1)
        for name in ("worker", "step", "version"):
            clocked = np.take_along_axis(np.asarray(getattr(one.trace, name)), order, axis=1)
            assert (clocked == np.asarray(getattr(mine, name))).all()


def test_seconds_fall_with_the_bandwidth_and_rise_with_the_bits(ran: Ran) -> None:
    whole = ran.whole.transpose("setting", "bandwidth", "run", "evaluation", ...)
    assert (np.diff(whole.seconds.values, axis=1) <= 1e-6).all()
    assert (whole.seconds.values[0] >= whole.seconds.values[1]).all()
    reached, updates = whole.target_seconds.values, whole.target_updates.values[:, None]
    assert (np.isfinite(reached) == np.isfinite(updates)).all()
    ends = whole.seconds.values[0, :, 0, -1]  # at the slowest, all time is transfer
    slow = 60 * 5 * whole.bits.values[0] / whole.bandwidth.values[0]
    assert ends[0] == pytest.approx(slow, rel=0.01)


def test_what_is_lost_of_messages(ran: Ran) -> None:
    whole = ran.whole
    error = {name: report.mean_error(whole.sel(setting=name)) for name in SETTINGS}
    assert (error["identity"] == 0).all()
    k = int(0.1 * 2048)
    for name in ("random-k:0.1", "random-k:0.1 + feedback"):
        bound = float(whole.declared.sel(setting=name))
        assert bound == pytest.approx(32 / 3 - 1)
        np.testing.assert_allclose(error[name], 2048 / k - 1, rtol=0.35)
    declared = float(whole.declared.sel(setting="top-k:0.1"))
    assert declared == pytest.approx(1 - 3 / 32)
    for name in SETTINGS[1:4]:
        assert (error[name] > 0).all() and (error[name] < declared).all()
    carried = {name: report.mean_error(whole.sel(setting=name), "carried") for name in SETTINGS}
    np.testing.assert_allclose(carried["top-k:0.1"], 1.0, rtol=1e-5)
    assert (carried["random-k:0.1 + feedback"] > carried["top-k:0.1 + feedback"]).all()


def test_the_tables_and_the_picture(ran: Ran) -> None:
    lines = ran.stdout.splitlines()
    rows = [
        line for line in lines if re.match(r"(identity|top-k:0.1|random-k:0.1) +\w+ +\w+", line)
    ]
    assert len(rows) == 6 + 3
    assert "s, dense = 0.1" in ran.stdout and "break-even" in ran.stdout
    assert re.search(r"^feedback (helps|makes no clear difference to): top-k:0.1", ran.stdout, re.M)
    assert "nan" not in ran.stdout and "inf" not in ran.stdout
    assert (ran.out / "compression.png").read_bytes().startswith(b"\x89PNG")


def stamps(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("*.nc")}


def test_other_bandwidths_train_nothing(ran: Ran) -> None:
    parts = ran.out / "parts"
    before = stamps(parts)
    assert len(before) == 7
    more = ["--compressors", "random-k:0.1", "--ratios", "3", "--encode", "0.5", "--no-figure"]
    whole, other = ran.whole, ran.out.parent / "other"
    (other / "parts").mkdir(parents=True)
    for path in parts.glob("*.nc"):
        os.link(path, other / "parts" / path.name)
    done = run(ran.env, SCRIPT, other, *SMALL, *more)
    assert done.returncode == 0, done.stderr
    after = stamps(other / "parts")
    assert len(after) == 8 and before.items() <= after.items()
    again = Ran(other, done.stdout, ran.env).whole
    assert again.setting.values.tolist() == [SETTINGS[0], *SETTINGS[4:]]
    for name in ("test_loss", "target_updates", "rate"):
        xr.testing.assert_equal(again[name], whole[name].sel(setting=again.setting))
    # Half a second of encoding a round, but for dense gradients.
    ends = [
        one.seconds.transpose("setting", "bandwidth", ...).values[:, -1] for one in (again, whole)
    ]
    spent = ends[0] - ends[1][[0, 4, 5]]
    updates = again.updates.transpose("setting", "run", "evaluation").values
    np.testing.assert_allclose(spent, updates * np.array([0, 0.5, 0.5])[:, None, None], atol=1e-3)


def test_an_interrupt_keeps_what_is_done(ran: Ran) -> None:
    out = ran.out.parent / "interrupted"
    # Not the smoke size, which can be over before it is interrupted.
    other = ["--workers", "4", "--runs", "8", "--updates", "400", *ALL, "--no-figure"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command(SCRIPT, out, *other),
        env=ran.env,
        cwd=out.parent,
        stdout=pipe,
        stderr=pipe,
        text=True,
    )
    deadline = time.monotonic() + 200
    while not list((out / "parts").glob("*.nc")) and time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=100)
    assert process.returncode not in (0, None)
    assert stderr.strip().splitlines()[-1].startswith("interrupted: what is done is kept")
    assert "Traceback" not in stderr
    assert 1 <= len(stamps(out / "parts")) < 7
    assert not [path for path in out.rglob("*") if "partial" in path.name]


def test_break_even() -> None:
    rate = np.array([1.0, 10.0, 100.0, 1000.0])
    dense = np.array([1000.0, 100.0, 20.0, 10.0])
    # Twice as fast, as fast, slower: where they meet. Between bandwidths powers are interpolated.
    assert runs.break_even(rate, dense * [0.5, 0.5, 1, 2], dense) == pytest.approx(100)
    assert runs.break_even(rate, dense * [0.5, 0.5, 2, 2], dense) == pytest.approx(10**1.5)
    assert runs.break_even(rate, dense * [0.5, 0.5, 8, 8], dense) == pytest.approx(10**1.25)
    assert runs.break_even(rate[::-1], (dense * [0.5, 0.5, 2, 2])[::-1], dense[::-1]) == (
        pytest.approx(10**1.5)
    )
    assert runs.break_even(rate, dense / 2, dense) == math.inf
    assert runs.break_even(rate, dense, dense) == 0  # no faster
    assert runs.break_even(rate, np.full(4, math.inf), dense) == 0
    assert runs.break_even(rate, dense, np.full(4, math.inf)) == math.inf
    own = np.stack([dense * [0.5, 0.5, 2, 2]] * 3, axis=-1)
    found = runs.break_evens(rate, own, np.stack([dense] * 3, axis=-1))
    np.testing.assert_allclose(found, 10**1.5)


def test_statistics_of_runs_that_never_get_there() -> None:
    inf = math.inf
    a, b = np.array([1.0, 2.0, inf, inf]), np.array([2.0, 4.0, 6.0, inf])
    assert runs.median(a) == inf and runs.median(b) == 6
    np.testing.assert_array_equal(runs.over(a, b), [0.5, 0.5, inf, 1])
    assert runs.over(np.float64(3), np.float64(inf)) == 0
    samples = runs.resample(np.stack([b, 2 * b]))
    assert samples.shape == (2, 1000)
    np.testing.assert_array_equal(samples[1], 2 * samples[0])  # the same runs
    assert runs.spread(np.array([inf, 1.0, 1.0])) == (1, inf)
    assert all(map(math.isnan, runs.spread(np.array([1.0, math.nan]))))


def test_the_verdict_on_a_memory() -> None:
    def setting(updates: list[float], accuracy: float) -> Any:
        last = xr.DataArray([[accuracy]] * 4, dims=("run", "evaluation"))
        return SimpleNamespace(target_updates=xr.DataArray(updates, dims="run"), test_accuracy=last)

    never, good = setting([math.inf] * 4, 0.3), setting([8.0, 9.0, 9.0, 10.0], 0.9)
    assert report.verdict(never, good) == report.HELPS
    assert report.verdict(good, never) == report.HURTS
    assert report.verdict(good, good) == report.NEITHER
    assert report.verdict(never, setting([math.inf] * 4, 0.8)) == report.HELPS
    assert report.verdict(setting([math.inf] * 4, 0.3), never) == report.NEITHER


def test_seconds_of_bsp_in_closed_form() -> None:
    """Pull, compute and encode alike; then everyone's push through one ingress."""
    bits, speed = np.array([80.0, 80.0, 8.0]), np.array([100.0, math.inf, 100.0])
    links = runs.Links(bits, speed, np.array([0.0, 0.25, 0.25]), np.array([50.0, 50.0, 0.0]))
    keys = jax.random.split(jax.random.key(0), 2)
    found = runs.update_seconds(links, keys, delays.deterministic(1.0), 4, 3)
    update = np.array([0.5 + 1 + 3.2, 1 + 0.25, 1 + 0.25 + 0.32])
    expected = np.broadcast_to(update[:, None, None] * np.arange(1, 4), found.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


GRADIENT = {"a": jnp.linspace(-1.0, 2.0, 30).reshape(10, 3), "b": jnp.array([0.5, -0.25])}
EXTRAS = dtjax.types.Extras(
    jnp.int32(0), jnp.int32(0), jnp.int32(0), jnp.float32(1), jax.random.key(1), jax.random.key(2)
)
ENCODED = ("identity", "top-k:0.2", "random-k:0.5", "qsgd:4", "power-sgd:1", "scaled-sign", "int8")


@pytest.mark.parametrize("text", [*ENCODED, "majority-sign"])
def test_without_a_memory_a_message_is_that_of_the_compressor(text: str) -> None:
    compressor = runs.compressor_of("test", text)
    encoder = runs.encoder_of(compressor, "none")
    params = {"model": GRADIENT, "probe": jnp.zeros(2)}
    memory, plain = encoder.memory(params), compressor.memory(GRADIENT)
    for turn in range(3):
        gradient = jax.tree.map(lambda x, turn=turn: x + turn, GRADIENT)
        memory, message = encoder.encode(memory, params | {"model": gradient}, EXTRAS)
        plain, expected = compressor.encode(plain, gradient, EXTRAS)
        for name, sent in expected.items():
            np.testing.assert_array_equal(message["model"][name], sent)
        lost = sum(float(jnp.sum((expected[x] - gradient[x]) ** 2)) for x in gradient)
        norm = sum(float(jnp.sum(gradient[x] ** 2)) for x in gradient)
        np.testing.assert_allclose(message["probe"], [lost / norm, 1.0], rtol=1e-5, atol=1e-7)
    assert hasattr(encoder, "decode") == hasattr(compressor, "decode")


@pytest.mark.parametrize("memory", ["feedback", "ef21"])
def test_with_a_memory_the_error_is_of_what_was_compressed(memory: str) -> None:
    compressor = compressors.top_k(0.2)
    wrap = {"feedback": compressors.error_feedback, "ef21": compressors.ef21}[memory]
    encoder, plain = runs.encoder_of(compressor, memory), wrap(compressor)
    params = {"model": GRADIENT, "probe": jnp.zeros(2)}
    mine, his = encoder.memory(params), plain.memory(GRADIENT)
    carried = jax.tree.map(jnp.zeros_like, GRADIENT)  # residual, or what the server has
    for _ in range(3):
        sign = 1.0 if memory == "feedback" else -1.0
        given = jax.tree.map(lambda g, c, sign=sign: g + sign * c, GRADIENT, carried)
        mine, message = encoder.encode(mine, params, EXTRAS)
        his, expected = plain.encode(his, GRADIENT, EXTRAS)
        _, sent = compressor.encode(compressor.memory(GRADIENT), given, EXTRAS)
        carried = jax.tree.map(jnp.subtract, given, sent)
        if memory == "ef21":
            carried = expected
        for name in GRADIENT:
            np.testing.assert_array_equal(message["model"][name], expected[name])
        trees = (jax.tree.map(jnp.subtract, given, sent), given, GRADIENT)
        square = [sum(float(jnp.sum(x**2)) for x in tree.values()) for tree in trees]
        wanted = [square[0] / square[1], math.sqrt(square[1] / square[2])]
        np.testing.assert_allclose(message["probe"], wanted, rtol=1e-5)


def test_the_map_of_staleness(stale: Ran) -> None:
    whole = stale.whole
    sizes = {"memory": 2, "staleness": 2, "share": 2, "run": 3}
    assert sizes.items() <= dict(whole.sizes).items()
    assert whole.staleness.values.tolist() == [0, 2] and whole.share.values.tolist() == [1, 0.1]
    assert np.isfinite(whole.test_loss).all() and (whole.diverged == -1).all()
    dense = whole.sel(share=1.0)  # nothing is left to remember
    np.testing.assert_array_equal(
        dense.test_loss.sel(memory="feedback"), dense.test_loss.sel(memory="none")
    )
    assert (whole.isel(evaluation=0).test_loss == whole.test_loss[0, 0, 0, :, 0]).all()
    assert whole.attrs["study"] == "compression_staleness"
    found = re.findall(r"^memory \w+: staleness and sparsity .*A = -?\d", stale.stdout, re.M)
    assert len(found) == 2 and "nan" not in stale.stdout
    assert (stale.out / "compression_staleness.png").read_bytes().startswith(b"\x89PNG")


def test_every_gradient_has_the_staleness_asked_for() -> None:
    script = runpy.run_path(str(STALENESS), run_name="compression_staleness")
    config = script["Config"](updates=40, workers=4, staleness=(0, 3))
    for tau in (0, 3):
        trace = script["trace_of"](config, tau)
        stale = np.asarray(dtjax.staleness(trace))[:, 0]
        assert (stale == np.minimum(np.arange(40), tau)).all()
        assert (np.asarray(trace.worker)[:, 0] == np.arange(40) % 4).all()
        assert (np.asarray(trace.step)[:, 0] == np.arange(40) // 4).all()
        assert trace.slots == 4 and int(np.max(trace.slot)) <= tau


def test_a_second_map_trains_nothing(stale: Ran) -> None:
    before = stamps(stale.out / "parts")
    assert len(before) == 4
    small = [*SMALL, "--staleness", "2", "--shares", "0.1", "--memories", "none", "--no-figure"]
    done = run(stale.env, STALENESS, stale.out, *small)
    assert done.returncode == 0, done.stderr
    assert stamps(stale.out / "parts") == before
    first = stale.stdout[stale.stdout.index("memory: none") :].splitlines()[1:5]
    assert first == done.stdout[done.stdout.index("memory: none") :].splitlines()[1:5]


def grid(combine: Any, scatter: float = 1e-4) -> np.ndarray:
    """Return losses f[3, 3, 8] of costs of staleness and of sparsity, put together somehow."""
    noise = scatter * np.random.default_rng(0).standard_normal((3, 3, 8))
    costs = np.array([0.0, 0.5, 1.0])
    return combine(costs[:, None], costs[None])[..., None] + noise


def test_how_costs_go_together() -> None:
    found = interactions.interaction(grid(lambda a, b: 0.5 + a + b, 1e-2))
    assert found.says == "add" and found.added[0] == pytest.approx(1, abs=0.05)
    found = interactions.interaction(grid(lambda a, b: 0.5 * (1 + a) * (1 + b), 1e-2))
    assert found.says == "multiply" and found.multiplied[0] == pytest.approx(1, abs=0.05)
    assert found.added[1] > 1
    found = interactions.interaction(grid(lambda a, b: 0.5 + np.maximum(a, b)))
    assert found.says.startswith("mask") and found.added[2] < 1
    found = interactions.interaction(grid(lambda a, b: 0.5 * np.exp(a + b + 2 * a * b)))
    assert found.says == "more than multiply"
    found = interactions.interaction(grid(lambda a, b: 0.5 + a * b))
    assert found.says.startswith("undecided")
    lost = grid(lambda a, b: 0.5 + a + b)
    lost[2, 2] = math.inf
    found = interactions.interaction(lost)
    assert found.says == "more than multiply" and not any(map(math.isnan, found.added))


WRONG = [
    ({"policy": "asp"}, "policy must be bsp: .* one training does not do .*'asp'"),
    ({"compressors": ()}, "compressors must not be empty"),
    ({"compressors": ("top_k:0.1",)}, "compressors must be one of .*did you mean 'top-k'"),
    ({"compressors": ("top-k",)}, "compressors must be top-k:NUMBER, got 'top-k'"),
    ({"compressors": ("int8:3",)}, "compressors must be int8 without a number, got 'int8:3'"),
    ({"compressors": ("qsgd:2.5",)}, r"compressors must be qsgd:NUMBER.*got 'qsgd:2\.5'"),
    ({"memories": ("some",)}, "memories must be one of .*got 'some'"),
    ({"ratios": (1.0, 0.0)}, r"ratios must be positive and finite, got 0\.0"),
    ({"encode": -1.0}, r"encode must be non-negative and finite, got -1\.0"),
    ({"rates": ()}, "rates must not be empty"),
    ({"target": 0.0}, r"target must be above 0 and at most 1, got 0\.0"),
    ({"runs": 0}, "runs must be an integer 1 or more, got 0"),
    ({"window": -1}, "window must be an integer 0 or more, got -1"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG, ids=[str(wrong) for wrong, _ in WRONG])
def test_bad_settings(wrong: dict[str, Any], message: str) -> None:
    script = runpy.run_path(str(SCRIPT), run_name="compression")
    with pytest.raises(ValueError, match=f"compression: {message}"):
        script["settle"](script["Config"](**wrong))


WRONG_MAP = [
    ({"staleness": (-1,)}, "staleness must be an integer between 0 and 256, got -1"),
    ({"shares": (0.0,)}, r"shares must be above 0 and at most 1, got 0\.0"),
    ({"memories": ()}, "memories must not be empty"),
    ({"memories": ("ef21",)}, "memories must be one of feedback, none"),
    ({"rates": (math.inf,)}, "rates must be positive and finite, got inf"),
    ({"updates": 1}, "updates must be an integer 2 or more, got 1"),
]


@pytest.mark.parametrize(
    ("wrong", "message"), WRONG_MAP, ids=[str(wrong) for wrong, _ in WRONG_MAP]
)
def test_bad_settings_of_the_map(wrong: dict[str, Any], message: str) -> None:
    script = runpy.run_path(str(STALENESS), run_name="compression_staleness")
    with pytest.raises(ValueError, match=f"compression_staleness: {message}"):
        script["settle"](script["Config"](**wrong))


@pytest.mark.parametrize("script", [SCRIPT, STALENESS])
def test_errors_are_one_line_and_a_code(env: dict[str, str], tmp_path: Path, script: Path) -> None:
    done = run(env, script, tmp_path / "out", "--rates", "-1")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert not list(tmp_path.rglob("*.nc"))


@pytest.mark.parametrize("name", ["compression", "compression_staleness"])
def test_a_figure_wants_its_own_study(tmp_path: Path, name: str) -> None:
    study.write(xr.Dataset(attrs={"study": "other"}), tmp_path / "x.nc")
    script = runpy.run_path(str(ROOT / "figures" / f"{name}.py"), run_name="figure")
    with pytest.raises(ValueError, match=f"must be a result of studies/{name}.py"):
        script["main"](script["Options"](tmp_path / "x.nc", tmp_path / "x.png"))
