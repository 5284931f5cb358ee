"""The suites of the ledger, in the order of its page (how one is added: `tools/outside/__init__.py`)."""

from tools.outside.suite import Suite
from tools.outside.suites import (
    allbilly_rk3588,
    aosp_runtime,
    ez_rknn_async,
    frigate,
    immich,
    llama_rknpu2,
    mtx512,
    nnlib,
    ork_driver,
    ork_regcmd,
    rk_llama,
    rocket_userspace,
    rockllama,
    shown,
    tinygrad,
    tnn,
    ultralytics,
)

SUITES: tuple[Suite, ...] = (
    rocket_userspace.SUITE,
    tinygrad.SUITE,
    allbilly_rk3588.SUITE,
    mtx512.SUITE,
    ork_driver.SUITE,
    ork_regcmd.SUITE,
    ez_rknn_async.SUITE,
    rk_llama.SUITE,
    rockllama.SUITE,
    llama_rknpu2.SUITE,
    immich.SUITE,
    frigate.SUITE,
    ultralytics.SUITE,
    tnn.SUITE,
    aosp_runtime.SUITE,
    *nnlib.SUITES,
    *shown.SUITES,
)
