"""Changes that make a network faster, each of them done on a copy and timed (docs/howto/faster.md).

`change` says what a change is, a module for each kind finds those that a network allows (`kinds` lists them),
`timing` runs a changed network with the timing of the RTL, and `advise` ranks and combines.
"""
