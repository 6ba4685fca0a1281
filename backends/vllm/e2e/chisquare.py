"""A chi-square test of counts against probabilities."""

import math

LEAST = 10  # expected in a cell


def cells(counts, probabilities):
    """(seen, expected) of every cell: the tokens that are expected often enough, and one for all others together."""
    n = sum(counts.values())
    own = {t: p for t, p in probabilities.items() if n * p >= LEAST}
    found = [(counts.get(t, 0), n * p) for t, p in own.items()]
    rest = (sum(c for t, c in counts.items() if t not in own), n * (1 - sum(own.values())))
    return found + [rest] if rest[1] >= LEAST else found


def deviation(counts, probabilities):
    """By how many standard deviations the statistic is off, after Wilson and Hilferty, and the number of cells."""
    found = cells(counts, probabilities)
    freedom = len(found) - 1
    x = sum((seen - expected) ** 2 / expected for seen, expected in found)
    spread = 2 / (9 * freedom)
    return ((x / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread), len(found)
