"""The exponential mechanism, sampled exactly: P(i) ∝ base_i · exp(ε u_i / 2Δ).

**Private.** Let u_i change by at most Δ between neighbours, and let candidates and base
weights be public. Each term changes by a factor of at most e^{ε/2}, and so does their sum: the
choice is ε-private. Its log ratio stays within a *range* of ε whatever i is, hence it costs
ε²/8 in zCDP (Cesar and Rogers 2021), a quarter of what pure ε costs in general.

**Exact.** With γ_i = ε (max u - u_i) / 2Δ, a rational number of at least 0, P(i) ∝ base_i
exp(-γ_i). Candidates of equal ⌊γ⌋ = f form a *layer*. A draw takes a layer with probability ∝
e^{-f} Σ base_i, one of its candidates with probability ∝ base_i, and keeps it with probability
exp(-(γ_i - f)), else draws again. The last is above 1/e, so three trials are enough on average,
however many candidates there are. The layer is the place of a uniform number among the layers'
sums; those are known as integer intervals, and both get more digits until there is no doubt.
No candidate is left out, however unlikely.

Reference: M. Cesar, R. Rogers, Bounding, concentrating, and truncating: unifying privacy loss
composition for data analytics, ALT 2021.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

from pyramidion.errors import PrivacyError
from pyramidion.privacy.budget import Unit
from pyramidion.privacy.randomness import Randomness, Words
from pyramidion.privacy.twins import below, coin, exp_interval

Method = Literal["exponential", "smooth"]

_WORDS = 64  # random words made at a time: a draw needs about ten
_DIGITS = 128  # binary digits of a square root
_MOST = 2**63  # the sum of base weights: an index is drawn by one word


def chosen(
    utilities: Sequence[int | Fraction],
    *,
    epsilon: Fraction,
    sensitivity: Fraction | int,
    randomness: Randomness | None = None,
    base: Sequence[int] | None = None,
) -> int:
    """The index of one candidate, ε-privately: likelier the more useful it is.

    ``sensitivity`` is the most that a utility changes between neighbours. ``base`` are public
    integer weights, 1 each unless given; a candidate of base 0 is never chosen.

    >>> chosen([0, 5000, 0], epsilon=Fraction(1), sensitivity=1)
    1
    """
    bases = [1] * len(utilities) if base is None else list(base)
    _refuse_unusable(len(utilities), bases, epsilon, sensitivity)
    best = max(u for u, weight in zip(utilities, bases, strict=True) if weight)
    rate = Fraction(epsilon) / (2 * sensitivity)
    layers: dict[int, list[int]] = {}
    for i, (utility, weight) in enumerate(zip(utilities, bases, strict=True)):
        if weight:
            layers.setdefault(math.floor(rate * (best - utility)), []).append(i)
    floors = sorted(layers)
    masses = [sum(bases[i] for i in layers[floor]) for floor in floors]
    source = randomness if randomness is not None else Randomness()
    with source.words(chunk=_WORDS) as words:
        while True:
            floor = floors[_layer(words, floors, masses)]
            i = _member(words, layers[floor], bases)
            if coin(words, rate * (best - utilities[i]) - floor):
                return i


def _refuse_unusable(
    candidates: int, bases: list[int], epsilon: Fraction, sensitivity: Fraction | int
) -> None:
    if not epsilon > 0 or not sensitivity > 0:
        raise PrivacyError(
            "the exponential mechanism needs an epsilon and a sensitivity above 0; give it both"
        )
    if len(bases) != candidates or min(bases, default=0) < 0 or not 0 < sum(bases) <= _MOST:
        raise PrivacyError(
            "the exponential mechanism needs a base weight of at least 0 for each candidate, and "
            "a sum from 1 to 2**63; give it at least one candidate"
        )


def _layer(words: Words, floors: list[int], masses: list[int]) -> int:
    """Which layer a uniform number falls into, exactly: layer j has e^{-floors[j]} masses[j].

    S_j / T, the share of the first j layers, is A / (A + R), which grows with A and falls with
    R, the rest; so the intervals of A and R bound it on both sides.
    """
    digits, bits = words.take(), 64
    while True:
        lows, highs = _intervals(floors, masses, bits)
        low, high, rest_low, rest_high = 0, 0, sum(lows), sum(highs)
        for j, (least, most) in enumerate(zip(lows, highs, strict=True)):
            low, high = low + least, high + most
            rest_low, rest_high = rest_low - least, rest_high - most
            if (digits + 1) * (low + rest_high) <= low << bits:
                return j
            if digits * (high + rest_low) < high << bits:
                break  # it may lie on either side: more digits
        digits, bits = digits << 64 | words.take_spare(), bits + 64


def _intervals(floors: list[int], masses: list[int], bits: int) -> tuple[list[int], list[int]]:
    ends = [exp_interval(Fraction(floor), bits) for floor in floors]  # kept by nobody: exact
    lows = [mass * low for mass, (low, _) in zip(masses, ends, strict=True)]
    return lows, [mass * high for mass, (_, high) in zip(masses, ends, strict=True)]


def _member(words: Words, layer: list[int], bases: list[int]) -> int:
    """One candidate of a layer, by base weight."""
    left = below(words, sum(bases[i] for i in layer))
    for i in layer:
        left -= bases[i]
        if left < 0:
            return i
    raise PrivacyError("base weights changed during a draw; this is a bug")


def epsilon_per_draw(
    amount: Fraction, *, unit: Unit, draws: int, method: Method = "exponential"
) -> Fraction:
    """The ε of each of so many draws that together cost at most ``amount`` of the budget.

    In ε they add up. In ρ, a draw of the exponential mechanism costs ε²/8 and a smooth one, of
    which only pure ε is known, ε²/2; the square root is rounded down.

    >>> epsilon_per_draw(Fraction(1, 2), unit="epsilon", draws=4)
    Fraction(1, 8)
    >>> float(epsilon_per_draw(Fraction(1, 2), unit="rho", draws=4))
    1.0
    """
    if draws < 1 or amount <= 0:
        raise PrivacyError("draws that share no budget cannot be private; give them some")
    if unit == "epsilon":
        return Fraction(amount) / draws
    square = Fraction(amount) / draws * (8 if method == "exponential" else 2)
    shift = max(0, _DIGITS - square.numerator.bit_length() + square.denominator.bit_length())
    return Fraction(math.isqrt(math.floor(square * 4**shift)), 2**shift)
