"""The suites of the ledger, in the order of its page (how one is added: `tools/outside/__init__.py`)."""

from tools.outside.suite import Suite
from tools.outside.suites import (
    ez_rknn_async,
    frigate,
    immich,
    llama_rknpu2,
    ork_driver,
    rk_llama,
    rocket_userspace,
    shown,
    tinygrad,
)

SUITES: tuple[Suite, ...] = (
    rocket_userspace.SUITE,
    tinygrad.SUITE,
    ork_driver.SUITE,
    ez_rknn_async.SUITE,
    rk_llama.SUITE,
    llama_rknpu2.SUITE,
    immich.SUITE,
    frigate.SUITE,
    *shown.SUITES,
)
