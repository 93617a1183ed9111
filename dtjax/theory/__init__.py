"""Closed forms and quadrature for run time and staleness of distributed SGD, binary64 on the host.

Order statistics of compute times, seconds per update of each policy, laws of the staleness; SGD on
quadratics: moments, stability, loss against time. A law is any object with `mean`, `variance` and
`isf`, so every delay law of the library is one.
"""

from dtjax.theory.order_statistics.any_law import (
    order_statistic_mean,
    order_statistic_variance,
    unequal_exponential_maximum_mean,
)
from dtjax.theory.order_statistics.by_law import (
    exponential_order_statistic_mean,
    exponential_order_statistic_variance,
    pareto_order_statistic_mean,
    pareto_order_statistic_moment,
    pareto_order_statistic_variance,
    uniform_order_statistic_mean,
    uniform_order_statistic_variance,
)
from dtjax.theory.order_statistics.harmonic import harmonic, harmonic_difference, harmonic_limit
from dtjax.theory.order_statistics.law import Law
from dtjax.theory.quadratic.constant_delay import (
    constant_delay_fastest_rate,
    constant_delay_response,
    constant_delay_second_moments,
    constant_delay_stability_edge,
    constant_delay_stationary_variance,
)
from dtjax.theory.quadratic.frontier import Frontier, frontier, loss_at_seconds, stability_map
from dtjax.theory.quadratic.frontier_search import BestRate, BestSwitch, best_rate, best_switch
from dtjax.theory.quadratic.moments import (
    exponential_asp_second_moments,
    exponential_k_asp_second_moments,
    exponential_k_batch_asp_second_moments,
    synchronous_second_moments,
)
from dtjax.theory.quadratic.stability import (
    exponential_asp_stability_edge,
    exponential_k_asp_stability_edge,
    exponential_k_batch_asp_stability_edge,
    synchronous_stability_edge,
)
from dtjax.theory.quadratic.stationary import (
    exponential_asp_stationary_variance,
    exponential_k_asp_stationary_variance,
    exponential_k_batch_asp_stationary_variance,
    synchronous_stationary_variance,
)
from dtjax.theory.runtime.asynchronous import (
    asp_seconds,
    deterministic_k_batch_asp_seconds,
    exponential_k_asp_seconds,
    fresh_start_k_batch_asp_seconds,
    k_batch_asp_seconds,
    unequal_asp_updates_per_second,
)
from dtjax.theory.runtime.speedup import (
    asp_over_bsp_gradient_speedup,
    asp_over_bsp_update_speedup,
    bsp_utilisation,
)
from dtjax.theory.runtime.ssp import (
    lockstep_ssp_clock_seconds,
    two_worker_ssp_clocks_per_second,
    two_worker_ssp_idle_fraction,
    two_worker_ssp_mean_staleness,
)
from dtjax.theory.runtime.synchronous import (
    bsp_seconds,
    deterministic_k_batch_bsp_seconds,
    exponential_k_batch_bsp_cdf,
    exponential_k_batch_bsp_seconds,
    exponential_k_batch_bsp_variance,
    k_bsp_seconds,
)
from dtjax.theory.staleness.laws import (
    exponential_asp_staleness_pmf,
    exponential_k_asp_staleness_pmf,
    exponential_k_batch_asp_staleness_pmf,
)
from dtjax.theory.staleness.means import (
    asp_mean_staleness,
    asp_staleness_sum,
    k_asp_mean_staleness,
    k_asp_staleness_sum,
    k_batch_asp_mean_staleness,
    ssp_staleness_bound,
    synchronous_mean_staleness,
    unequal_asp_mean_staleness,
)

__all__ = [
    "BestRate",
    "BestSwitch",
    "Frontier",
    "Law",
    "asp_mean_staleness",
    "asp_over_bsp_gradient_speedup",
    "asp_over_bsp_update_speedup",
    "asp_seconds",
    "asp_staleness_sum",
    "best_rate",
    "best_switch",
    "bsp_seconds",
    "bsp_utilisation",
    "constant_delay_fastest_rate",
    "constant_delay_response",
    "constant_delay_second_moments",
    "constant_delay_stability_edge",
    "constant_delay_stationary_variance",
    "deterministic_k_batch_asp_seconds",
    "deterministic_k_batch_bsp_seconds",
    "exponential_asp_second_moments",
    "exponential_asp_stability_edge",
    "exponential_asp_staleness_pmf",
    "exponential_asp_stationary_variance",
    "exponential_k_asp_second_moments",
    "exponential_k_asp_seconds",
    "exponential_k_asp_stability_edge",
    "exponential_k_asp_staleness_pmf",
    "exponential_k_asp_stationary_variance",
    "exponential_k_batch_asp_second_moments",
    "exponential_k_batch_asp_stability_edge",
    "exponential_k_batch_asp_staleness_pmf",
    "exponential_k_batch_asp_stationary_variance",
    "exponential_k_batch_bsp_cdf",
    "exponential_k_batch_bsp_seconds",
    "exponential_k_batch_bsp_variance",
    "exponential_order_statistic_mean",
    "exponential_order_statistic_variance",
    "fresh_start_k_batch_asp_seconds",
    "frontier",
    "harmonic",
    "harmonic_difference",
    "harmonic_limit",
    "k_asp_mean_staleness",
    "k_asp_staleness_sum",
    "k_batch_asp_mean_staleness",
    "k_batch_asp_seconds",
    "k_bsp_seconds",
    "lockstep_ssp_clock_seconds",
    "loss_at_seconds",
    "order_statistic_mean",
    "order_statistic_variance",
    "pareto_order_statistic_mean",
    "pareto_order_statistic_moment",
    "pareto_order_statistic_variance",
    "ssp_staleness_bound",
    "stability_map",
    "synchronous_mean_staleness",
    "synchronous_second_moments",
    "synchronous_stability_edge",
    "synchronous_stationary_variance",
    "two_worker_ssp_clocks_per_second",
    "two_worker_ssp_idle_fraction",
    "two_worker_ssp_mean_staleness",
    "unequal_asp_mean_staleness",
    "unequal_asp_updates_per_second",
    "unequal_exponential_maximum_mean",
    "uniform_order_statistic_mean",
    "uniform_order_statistic_variance",
]
