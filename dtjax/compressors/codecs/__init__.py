"""What is sent, as bits: the proof that the bits a compressor accounts for are enough.

A *bit vector* is `u8[count]` of zeros and ones, first bit sent first; numpy on the host only. A
message is a concatenation of them; every reader starts at the first bit and ignores what follows.
"""

from dtjax.compressors.codecs.bits import from_bytes, read_fixed, to_bytes, write_fixed
from dtjax.compressors.codecs.floats import FLOATS, read_floats, write_floats
from dtjax.compressors.codecs.indices import IndicesRead, read_indices, write_indices
from dtjax.compressors.codecs.lengths import INDEX_CODES, entropy_bound, index_bits

__all__ = [
    "FLOATS",
    "INDEX_CODES",
    "IndicesRead",
    "entropy_bound",
    "from_bytes",
    "index_bits",
    "read_fixed",
    "read_floats",
    "read_indices",
    "to_bytes",
    "write_fixed",
    "write_floats",
    "write_indices",
]
