"""Whether a tensor holds numbers only.

if not is_finite(tensor): raise ModelFileError(...)
"""

from __future__ import annotations

import math

from torch import Tensor


def is_finite(tensor: Tensor) -> bool:
    """Whether no value is NaN or infinite: one pass, and no mask as large as the tensor.

    A NaN makes both the smallest and the largest value NaN. 46 MB of bfloat16 take 4 ms; their sum
    in float32 took 66.
    """
    if not tensor.numel():
        return True
    low, high = tensor.aminmax()
    return math.isfinite(low.item()) and math.isfinite(high.item())
