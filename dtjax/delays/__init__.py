"""Compute-time laws: how long a worker takes for one mini-batch.

A law is any object with the protocol `dtjax.types.Delay`; these are the ones that ship. Laws of a
single computation first, then wrappers that make workers unequal, or times dependent.
"""

from dtjax.delays.autoregressive import Autoregressive, autoregressive
from dtjax.delays.batch_cost import batch_cost
from dtjax.delays.bimodal import Bimodal, bimodal
from dtjax.delays.deterministic import Deterministic, deterministic
from dtjax.delays.exponential import Exponential, exponential
from dtjax.delays.gamma import Gamma, gamma
from dtjax.delays.hyper_exponential import HyperExponential, hyper_exponential
from dtjax.delays.law import Memoryless, clocked
from dtjax.delays.log_normal import LogNormal, log_normal
from dtjax.delays.pareto import Pareto, pareto
from dtjax.delays.per_worker import PerWorker, per_worker
from dtjax.delays.recorded import Recorded, recorded
from dtjax.delays.regimes import Regimes, regimes
from dtjax.delays.scaled import Scaled, scaled
from dtjax.delays.slowdowns import Slowdowns, slowdowns
from dtjax.delays.uniform import Uniform, uniform
from dtjax.delays.weibull import Weibull, weibull

__all__ = [
    "Autoregressive",
    "Bimodal",
    "Deterministic",
    "Exponential",
    "Gamma",
    "HyperExponential",
    "LogNormal",
    "Memoryless",
    "Pareto",
    "PerWorker",
    "Recorded",
    "Regimes",
    "Scaled",
    "Slowdowns",
    "Uniform",
    "Weibull",
    "autoregressive",
    "batch_cost",
    "bimodal",
    "clocked",
    "deterministic",
    "exponential",
    "gamma",
    "hyper_exponential",
    "log_normal",
    "pareto",
    "per_worker",
    "recorded",
    "regimes",
    "scaled",
    "slowdowns",
    "uniform",
    "weibull",
]
