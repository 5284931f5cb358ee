"""The ledger of outside suites: what programs and tests of others say of this NPU, test by test.

    python -m tools.outside DIR                          # every suite whose repository is below DIR
    python -m tools.outside DIR --suite NAME --engine golden
    python -m tools.outside                              # only the page, from the kept verdicts
    make outside DIR=FOLDER

`DIR` is a folder of repositories that somebody fetched, named `owner+name` or `owner/name`: a checkout, a
bare git folder (also one named `repo` in it), or single files with their commit in a file `COMMIT`.  Nothing
of them is kept here, nothing is changed in them, and nothing is built: a suite with programs is built in its
folder as its own README says, against what a board has, before the ledger runs it.

The verdicts of each test are kept in `docs/results/outside.json`, and `docs/results/outside.md` is written
from it.  The next run compares: a test that falls back (`record.fallen`) fails the command with exit code 1,
and its suite keeps its old verdicts, until it is mended or `--accept SUITE` takes the new ones.  A suite
whose repository is not below `DIR` keeps its row, which then says that it was not run.

How a suite is added
--------------------
1. A module in `tools/outside/suites` with a `Suite` (`suite.py`) named `SUITE`, listed in
   `suites/__init__.py`.  Its members say in one sentence each what the suite tests and how it is run, what a
   board said (`board`, of each test, with `board_source`: repository, commit, file), `why` each test
   differs, and what `cannot` be run here.
2. Its `run(here, engine, folder)` gets the checkout, "golden" or "rtl", and an empty folder, and returns an
   `Outcome` for each test, by name.  `programs.py` runs programs under `rkcosim device`, `rkcosim rknn` and
   the other doors (`under`), one `Outcome` for each program (`each_program`), and pytest with an outcome for
   each test (`pytest_under`).  What the suite lacks (a program that is not built, a package) raises
   `NotHere`, whose text becomes "not run: ...".  Names of tests do not change from run to run and have no
   paths of a machine in them.  `engines` leaves out an engine that would take hours.
3. A suite that another command runs and shows has no `run`; `shown` names the page that has its verdicts.
4. A small stand-in for a package or a model that a suite expects is made by `run` in its folder.  Nothing of
   the suite, and nothing that would build it, comes into this repository.
5. `python -m tools.outside DIR --suite NAME`, then commit `docs/results/outside.json` and `outside.md`.

Every difference is mended, or its reason in `why` names the place that has it: a line of
docs/differences.md, or a question of docs/board.md with the program that would settle it.
`tests/unit/test_outside.py` fails for a difference without a reason.
"""
