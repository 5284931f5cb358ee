"""Conformance: groups of random tasks, the vendor's tile plans, field coverage, mutants."""
