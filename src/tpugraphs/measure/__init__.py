"""Measuring: a worker process that may die, seeded inputs, checks of results, paired timing, and the journal of it.

Nothing is imported here: reading a journal needs no compiler.
"""
