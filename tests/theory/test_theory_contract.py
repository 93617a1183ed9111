"""What all of `dtjax.theory` keeps to: errors, precision, documentation, examples that run."""

from __future__ import annotations

import math
from typing import Any, cast

import jax.numpy as jnp
import numpy as np
import pytest

from dtjax import theory
from theory_laws import Exponential, Moments, Pareto, Uniform

HEAVY = Pareto(0.9)


def test_no_global_setting_is_changed_and_scalars_stay_scalars():
    before = jnp.asarray(1.0).dtype
    value = theory.order_statistic_mean(Exponential(np.float32(1.0)), 8, 8)
    assert jnp.asarray(1.0).dtype == before
    assert isinstance(value, float)
    assert value == pytest.approx(2.717857142857143, rel=1e-14)
    grid = theory.order_statistic_mean(Exponential(1.0), [[8], [9]], [1, 2, 3])
    assert np.shape(grid) == (2, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.harmonic(-1), "harmonic: m must be an integer of at least 0, got -1"),
        (lambda: theory.harmonic([1, 2.5]), "harmonic: m .* got 2.5"),
        (lambda: theory.harmonic(math.inf), "harmonic: m .* got inf"),
        (lambda: theory.harmonic("three"), "harmonic: m .* got 'three'"),
        (lambda: theory.harmonic(True), "harmonic: m .* got True"),
        (lambda: theory.harmonic_limit(1.5), "fraction must be between 0 and 1, got 1.5"),
        (lambda: theory.harmonic_limit(math.nan), "fraction must be between 0 and 1, got nan"),
        (
            lambda: theory.order_statistic_mean(Exponential(1.0), 8, 9),
            "order_statistic_mean: k must be an integer between 1 and n=8, got 9",
        ),
        (lambda: theory.harmonic_difference([4, 8], [4, 9]), "between 0 and n=8, got 9"),
        (lambda: theory.harmonic_difference([4, 8], [1, 2, 3]), "k must broadcast against n"),
        (lambda: theory.order_statistic_variance(Exponential(1.0), 0, 1), "n must .* got 0"),
        (
            lambda: theory.exponential_order_statistic_mean(8, 4, per_second=0.0),
            "per_second must be positive",
        ),
        (
            lambda: theory.exponential_order_statistic_mean(8, 4, shift=-1.0),
            "shift must be non-neg",
        ),
        (lambda: theory.uniform_order_statistic_mean(8, 4, 2.0, 1.0), "high must be at least low"),
        (lambda: theory.pareto_order_statistic_mean(8, 4, shape=math.nan), "shape .* got nan"),
        (lambda: theory.pareto_order_statistic_moment(8, 4, 2.0, order=math.inf), "order .* inf"),
        (lambda: theory.unequal_exponential_maximum_mean([1.0, -2.0]), "rates .* got -2.0"),
        (lambda: theory.unequal_exponential_maximum_mean(3.0), "rates must be a vector"),
        (lambda: theory.unequal_exponential_maximum_mean([]), "rates must be a vector"),
        (
            lambda: theory.order_statistic_mean(Exponential(math.nan), 8, 4),
            "law must have a finite",
        ),
        (lambda: theory.order_statistic_mean(Uniform(-3.0, -1.0), 8, 4), "law must have non-neg"),
        (lambda: theory.order_statistic_mean(cast(Any, 3.0), 8, 4), "with `isf`, got float"),
        (lambda: theory.order_statistic_mean(Exponential(np.ones(1024)), 8, 4), "not a batch"),
        (lambda: theory.order_statistic_mean(Exponential(np.ones(3)), 8, 4), r"got shape \(3,\)"),
    ],
)
def test_bad_input_to_order_statistics(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: theory.k_bsp_seconds(Exponential(1.0), 8, 9),
            "k_bsp_seconds: k must be an integer between 1 and n=8, got 9",
        ),
        (lambda: theory.bsp_seconds(Exponential(1.0), 0), "bsp_seconds: n must .* got 0"),
        (lambda: theory.bsp_seconds(Exponential(math.nan), 8), "bsp_seconds: law must .* got nan"),
        (
            lambda: theory.asp_seconds(HEAVY, 8),
            "asp_seconds: law must have a positive finite mean, got inf",
        ),
        (lambda: theory.asp_seconds(cast(Any, None), 8), "with `mean`, got NoneType"),
        (lambda: theory.k_batch_asp_seconds(HEAVY, 8, 2), "positive finite mean, got inf"),
        (lambda: theory.asp_seconds(Exponential(math.nan), 8), "non-negative mean, got nan"),
        (lambda: theory.asp_seconds(Exponential(np.ones(3)), 8), "not a batch, got shape"),
        (lambda: theory.asp_over_bsp_update_speedup(HEAVY, 8), "speedup: law .* got inf"),
        (lambda: theory.bsp_utilisation(HEAVY, 8), "bsp_utilisation: law .* got inf"),
        (
            lambda: theory.fresh_start_k_batch_asp_seconds(Pareto(1.5), 8, 1, 10),
            "law must have a finite variance, got inf",
        ),
        (
            lambda: theory.fresh_start_k_batch_asp_seconds(Moments(1.0, 0.0), 8, 1, 10),
            "must not be constant",
        ),
        (
            lambda: theory.fresh_start_k_batch_asp_seconds(Moments(1.0, 1.0), 8, 1, 0),
            "updates must be an integer of at least 1, got 0",
        ),
        (lambda: theory.exponential_k_asp_seconds(8, 9), "between 1 and n=8, got 9"),
        (
            lambda: theory.exponential_k_asp_seconds(8, 4, -1.0),
            "per_second must be positive .* -1.0",
        ),
        (lambda: theory.exponential_k_batch_bsp_seconds(8, 0), "k must .* at least 1, got 0"),
        (lambda: theory.exponential_k_batch_bsp_cdf(-1.0, 8, 4), "seconds must be non-negative"),
        (lambda: theory.deterministic_k_batch_bsp_seconds(8, 4, 0.0), "seconds must be positive"),
        (lambda: theory.deterministic_k_batch_asp_seconds(8, 4, 1.5, 1.0), "updates .* got 1.5"),
        (lambda: theory.unequal_asp_updates_per_second([1.0, math.nan]), "mean_seconds .* got nan"),
        (
            lambda: theory.unequal_asp_updates_per_second([1.0], k=cast(Any, [1, 2])),
            "k must be one number",
        ),
        (lambda: theory.unequal_asp_mean_staleness([[1.0]]), "rates must be a vector"),
        (lambda: theory.two_worker_ssp_idle_fraction(-1), "bound must be .* got -1"),
        (lambda: theory.two_worker_ssp_mean_staleness(0.5), "bound must be .* got 0.5"),
        (
            lambda: theory.two_worker_ssp_clocks_per_second(1, math.inf),
            "per_second must be .* got inf",
        ),
        (lambda: theory.exponential_asp_staleness_pmf([-1], 8), "staleness must .* got -1"),
        (lambda: theory.exponential_k_asp_staleness_pmf(0, 8, 9), "between 1 and n=8, got 9"),
        (lambda: theory.exponential_k_batch_asp_staleness_pmf(0, 8, 0), "k must be .* got 0"),
        (lambda: theory.asp_staleness_sum(8, -1), "updates must be .* got -1"),
        (lambda: theory.k_asp_staleness_sum(8, 9, 1), "between 1 and n=8, got 9"),
        (lambda: theory.ssp_staleness_bound(8, -2), "bound must be .* got -2"),
    ],
)
def test_bad_input_to_policies(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_infinite_times_are_inf_where_nothing_else_is_needed():
    assert theory.bsp_seconds(HEAVY, 8) == math.inf
    assert theory.k_bsp_seconds(HEAVY, 8, 7) < math.inf


def test_every_public_function_says_what_it_needs_to():
    for name in theory.__all__:
        thing = getattr(theory, name)
        if callable(thing) and not isinstance(thing, type):
            text = thing.__doc__
            for section in ("Args:", "Returns:", "Raises:", "Example:", "Reference:"):
                assert section in text, f"{name} lacks {section}"
