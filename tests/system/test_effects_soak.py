"""G10 as tests/system/soak_effects.py N SECONDS plays it at length: random kills, each way, and the truth at the end."""
import pytest
from soak_effects import soak


@pytest.mark.parametrize("mode", ["transaction", "log"])
def test_random_kills(stack, tmp_path, seed, mode):
    print(soak(stack, tmp_path, mode, kills=10, seconds=8))
