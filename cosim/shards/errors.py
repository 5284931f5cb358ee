"""What can go wrong with a cluster or a shard, on purpose."""

from __future__ import annotations


class ClusterError(Exception):
    """A cluster cannot be used: Dask is missing, nobody answers, workers differ."""


class WorkersLost(ClusterError):
    """Workers died too often, or none is left."""


class ShardError(Exception):
    """A shard did not end as it should; `cause` is what the simulation raised, if it did."""

    def __init__(self, message: str, cause: BaseException | None = None) -> None:
        self.cause = cause
        super().__init__(message)

    def __reduce__(self) -> tuple[type[ShardError], tuple[str, BaseException | None]]:
        """Come whole out of a worker: errors that cannot be sent are left behind."""
        return ShardError, (str(self), _sendable(self.cause))


def _sendable(error: BaseException | None) -> BaseException | None:
    import pickle

    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return None
    return error
