"""The suites of the ledger, in the order of its page (how one is added: `tools/outside/__init__.py`)."""

from tools.outside.suite import Suite
from tools.outside.suites import ez_rknn_async, frigate, immich, rocket_userspace, shown

SUITES: tuple[Suite, ...] = (
    rocket_userspace.SUITE,
    ez_rknn_async.SUITE,
    immich.SUITE,
    frigate.SUITE,
    *shown.SUITES,
)
