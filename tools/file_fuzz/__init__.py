"""Fuzzing of all kinds of files that commands read: each must give an error or a result in bounded time.

Valid files are changed (bytes, words, pieces; in JSON documents also values, types and names), often to very
large sizes, and passed to the reader that the commands use (`tools.file_fuzz.kinds`).  A reader may accept
the file, or refuse it with one of the errors that the command line prints as one line.  A `.rknn` file must
be refused as bad input (exit code 2) or run to its end: an error of the device (exit code 3) is a failure
there, because the check of the command lists should have refused the file.  Everything else is a failure
(`tools.file_fuzz.judge`): another exception, an input that takes longer or needs more memory than the limits,
a file that is opened elsewhere or remains, a program that is started, descriptors that remain.

`fuzz_files` does this in the calling process; `python -m tools.file_fuzz` runs many cases in processes that
it forks, and goes on from its record.
"""

from tools.file_fuzz.changes import mutated
from tools.file_fuzz.judge import fuzz_files
from tools.file_fuzz.kinds import KINDS
from tools.file_fuzz.reports import Kind, KindReport

__all__ = ["KINDS", "Kind", "KindReport", "fuzz_files", "mutated"]
