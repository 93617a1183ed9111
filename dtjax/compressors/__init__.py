"""Compressors: what a worker sends in place of its gradient. One file each."""

from dtjax.compressors.bf16 import bf16 as bf16
from dtjax.compressors.compose import compose as compose
from dtjax.compressors.compressor import CONTRACTIVE as CONTRACTIVE
from dtjax.compressors.compressor import NEITHER as NEITHER
from dtjax.compressors.compressor import UNBIASED as UNBIASED
from dtjax.compressors.compressor import Compressor as Compressor
from dtjax.compressors.dense_below import dense_below as dense_below
from dtjax.compressors.dgc import dgc as dgc
from dtjax.compressors.ef21 import ef21 as ef21
from dtjax.compressors.error_feedback import error_feedback as error_feedback
from dtjax.compressors.fp8 import fp8 as fp8
from dtjax.compressors.fp8 import fp8_e4m3 as fp8_e4m3
from dtjax.compressors.fp8 import fp8_e5m2 as fp8_e5m2
from dtjax.compressors.fp16 import fp16 as fp16
from dtjax.compressors.identity import identity as identity
from dtjax.compressors.int8 import int8 as int8
from dtjax.compressors.majority_sign import majority_sign as majority_sign
from dtjax.compressors.natural import natural as natural
from dtjax.compressors.one_bit import one_bit as one_bit
from dtjax.compressors.power_sgd import power_sgd as power_sgd
from dtjax.compressors.power_sgd import power_sgd_round as power_sgd_round
from dtjax.compressors.qsgd import qsgd as qsgd
from dtjax.compressors.random_k import random_k as random_k
from dtjax.compressors.scaled_sign import scaled_sign as scaled_sign
from dtjax.compressors.terngrad import terngrad as terngrad
from dtjax.compressors.threshold import threshold as threshold
from dtjax.compressors.top_k import top_k as top_k
from dtjax.compressors.whole import whole as whole
from dtjax.core import plugins

plugins.found(__name__)  # exports the compressors of files that are not named here, too
