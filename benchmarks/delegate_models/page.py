"""The page with the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.public_models.files import Public
from benchmarks.public_models.measure import Record


def good(record: Record) -> bool:
    return True


def state(record: Record) -> str:
    if "result" not in record:
        return record.get("error", record["stage"])[:150]
    p = record["plugin"]
    return f"{p['taken']}/{p['operators']} in {p['parts']}, {record['result']['equal']} {record.get('plain_result', {}).get('equal')} {record.get('parts')}"


def page(records: Mapping[Public, Record], missing: Sequence[Public], seed: int) -> str:
    return ""


def summary(records: Mapping[Public, Record], missing: Sequence[Public]) -> str:
    return ""
