"""The split of the code that the paper's authors released, number for number.

Their script (Python 2) shuffles the ratings in file order and cuts the shuffled list into
training, validation and test, in this order.
"""

from __future__ import annotations

import math
import random
from array import array

import numpy as np

from cfnade.data.rows import IndexArray

AUTHORS_SEEDS = (1234, 2341, 3412, 4123, 1324)
"""The seeds in the released script. Other seeds give splits made the same way, not theirs."""


def authors_order(n: int, seed: int) -> IndexArray:
    """Positions in the file, in the order after Python 2's `random.shuffle`. Returns (n,).

    Python 3 seeds its generator with an integer as Python 2 did and draws the same numbers in
    [0, 1), but picks shuffle partners in another way; this is Python 2's.
    """
    draw = random.Random(seed).random
    order = array("i", range(n))
    for i in range(n - 1, 0, -1):
        j = int(draw() * (i + 1))
        order[i], order[j] = order[j], order[i]
    return np.frombuffer(order, np.intc).astype(np.int32, copy=False)


def authors_sizes(n: int) -> tuple[int, int]:
    """How many ratings are validation and test: ceilings of floating-point products, as theirs."""
    # 0.9 * 0.005 is a little above 0.0045, so 2,000 ratings give 10 of validation, not 9.
    return math.ceil(n * (0.9 * 0.005)), math.ceil(n * 0.1)
