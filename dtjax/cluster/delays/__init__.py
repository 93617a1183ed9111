"""Compute-time laws: how long a worker takes for one mini-batch.

A law is any object with the protocol `dtjax.protocols.Delay`; these are the ones that ship. Laws
of a single computation first, then wrappers that make workers unequal, or times dependent.
"""

from dtjax.cluster.delays.autoregressive import Autoregressive, autoregressive
from dtjax.cluster.delays.batch_cost import batch_cost
from dtjax.cluster.delays.bimodal import Bimodal, bimodal
from dtjax.cluster.delays.deterministic import Deterministic, deterministic
from dtjax.cluster.delays.exponential import Exponential, exponential
from dtjax.cluster.delays.gamma import Gamma, gamma
from dtjax.cluster.delays.hyper_exponential import HyperExponential, hyper_exponential
from dtjax.cluster.delays.law import Memoryless, clocked
from dtjax.cluster.delays.log_normal import LogNormal, log_normal
from dtjax.cluster.delays.pareto import Pareto, pareto
from dtjax.cluster.delays.per_worker import PerWorker, per_worker
from dtjax.cluster.delays.recorded import Recorded, recorded
from dtjax.cluster.delays.regimes import Regimes, regimes
from dtjax.cluster.delays.scaled import Scaled, scaled
from dtjax.cluster.delays.slowdowns import Slowdowns, slowdowns
from dtjax.cluster.delays.uniform import Uniform, uniform
from dtjax.cluster.delays.weibull import Weibull, weibull
from dtjax.core import plugins

plugins.found(__name__)  # exports the laws of files that are not named here, too

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
