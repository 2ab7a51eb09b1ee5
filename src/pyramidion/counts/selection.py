"""Which groups are worth counting: scores of features that are counted together.

Rows are cut into `STRETCHES`, of time or of people. With e_y the unit vector of a row's label, π a
prior that is known already, and of the n rows of a key, one value of a group, n_t in stretch t,

    A = Σ (e_y - π),    A_t the same in stretch t,    Q = ½ Σ over keys of (‖A‖² - Σ_t ‖A_t‖²) / n.

‖A‖² - Σ‖A_t‖² is the sum of ⟨e_y - π, e_y′ - π⟩ over pairs of rows from *different* stretches: how
much labels of one key agree at different times. A key that occurs once scores 0, whatever its
label. (Plug-in mutual information gives such keys the whole entropy of the label, so ⟨user, item⟩
always wins.) So does one that occurs at one time only. Rows that come together are often of one
person, one session or one machine and agree for that reason: with them, a group of two features
that describe people would be as good as a name, and tell nothing of who comes next. Counts of the
past are for the future, so what counts is what lasts. Where it is known whose each row is (a
`unit`), stretches are not of time but of people: an eighth of them each, by their keyed hash. What
agrees then agrees among different people: all that tables can tell whose noise hides people.

A group is as good as its *gain*: Q less what both parts it was made of say of the same rows. What
two features say each by itself is no gain: a model has that from their own tables. (Over the better
part alone, pairs of two strong features gain most, whether they interact or not.) Of the n rows of
a key n - Σ n_t²/n meet others: M of all keys together, in a group fewer than in its parts. A part's
Q is thus taken per such row, and as often as the group has some:

    G = Q(ab) - M(ab) Q(a)/M(a) - M(ab) Q(b)/M(b).

(Q(ab) - Q(a) - Q(b) would hold it against a group that its keys are many, as in ⟨movie, age⟩.)
Q(a)/M(a) is taken as within 0 and 1/16, so that one row changes little of it.

docs/privacy.md proves how little one row changes both. For that to hold for what is
computed, too, Q and M are sums of whole numbers: each key's term is rounded down to 1/UNIT.

All of it is as raw as the rows (P1): made in memory, read once, dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from pyramidion.counts.selection_kernels import (
    MOST_ROWS,
    UNIT,
    WEIGHT,
    join_codes,
    score_pairs,
)
from pyramidion.errors import PrivacyError, StateError
from pyramidion.rows.hashing import Keys
from pyramidion.rows.observations import Observations

Codes = NDArray[np.uint32]
Group = tuple[int, ...]
"""Places of features, in order."""
Pair = tuple[Group, Group]
"""What a group is made of: one that is there, and what is added to it."""

MOST_CODES = 1 << 26
"""Codes of all features together, 0.8 GB with their keys: of 507 features 132,000 rows are read."""

MOST_THREADS = 2

LEAST_ROWS = 16
"""A part is taken to say 1/16 of a row at most. On MovieLens movies say 0.04 and users 0.03."""

STRETCHES = 8
"""Of time, by rows that came. More would cut through what comes together, of fewer less would meet:
of two half of all pairs of rows, of eight seven eighths."""


@dataclass(frozen=True)
class Scores:
    """Of some groups: Q and gain in units of 1/UNIT; and n times the mutual information that
    they have beyond the better part, as the paper has it."""

    quality: NDArray[np.int64]
    gain: NDArray[np.int64]
    information: NDArray[np.float64]


class Coded:
    """Rows as codes of their features, and their labels; blanked rows are left out.

    ``prior`` has each label's probability in units of 1/WEIGHT, from what is private already.
    """

    def __init__(
        self,
        codes: Codes,
        labels: NDArray[np.int64],
        prior: NDArray[np.int64],
        places: NDArray[np.int64] | None = None,
        came: int | None = None,
    ) -> None:
        if len(labels) > MOST_ROWS:
            raise StateError(f"groups are scored on at most {MOST_ROWS:,} rows; give fewer")
        self.codes = codes
        self.labels = np.ascontiguousarray(labels, dtype=np.int64)
        self.prior = prior
        self.came = len(labels) if came is None else came
        """Rows that came, blanked ones too: public."""
        self._places = np.arange(len(labels)) if places is None else places
        """Where each row came, or its person's place, never falling: stretches are cut by it."""
        self.cut = False
        """Whether rows of people were left out for want of room: then, where rows of somebody are
        blanked, as many of others may take their place."""
        self.threads = 1
        """That score pairs, up to `MOST_THREADS`: each has tables of its own, of the rows' size."""
        if np.any(np.diff(self._places) < 0):
            raise StateError("groups are scored on rows in the order that they came; sort them")
        self._joined: dict[Group, Codes] = {(f,): codes[f] for f in range(len(codes))}
        self._scores: dict[Group, tuple[int, int, float]] = {}
        self._last: tuple[list[Pair], Scores] | None = None
        self._under: dict[bytes, Coded] = {}

    @classmethod
    def of(
        cls, batches: Iterable[Observations], classes: int, came: Sequence[int] | None = None
    ) -> Coded:
        """The newest rows of some batches, as many as fit: how many is public. Even prior.

        ``came`` says how many rows each batch had when it came, of a schema with a unit: rows of
        people may have been erased since. Then nothing goes by where a row lies, see `_of_people`.
        """
        if came is not None:
            return cls._of_people(batches, classes, came)
        keys: deque[NDArray[np.uint64]] = deque()
        labels: deque[NDArray[np.int64]] = deque()
        held, most = 0, MOST_ROWS
        for batch in batches:
            features = len(batch.encoder.schema.features)
            keys.append(np.stack([batch.keys(f, 0, len(batch)) for f in range(features)]))
            blank = np.broadcast_to(batch.weights == 0, len(batch))
            labels.append(np.where(blank, -1, batch.labels))
            held, most = held + len(batch), most_rows(features)
            while held - len(labels[0]) >= most:  # newer ones are enough
                held -= len(labels.popleft())
                keys.popleft()
        whole = whole_prior(np.ones(classes))
        if not keys:
            return cls(np.zeros((0, 0), np.uint32), np.zeros(0, np.int64), whole)
        label = np.concatenate(labels)[-most:]
        kept = np.flatnonzero(label >= 0)
        codes = np.empty((len(keys[0]), len(kept)), dtype=np.uint32)
        for f in range(len(codes)):
            column = np.concatenate([rows[f] for rows in keys])[-most:]
            upper, lower = column[kept] >> np.uint64(32), column[kept] & np.uint64(0xFFFFFFFF)
            join_codes(upper.astype(np.uint32), lower.astype(np.uint32), codes[f])
        return cls(codes, label[kept], whole, kept, len(label))

    @classmethod
    def _of_people(
        cls, batches: Iterable[Observations], classes: int, came: Sequence[int]
    ) -> Coded:
        """The newest batches that fit, whole; each row at a place that its person has for good.

        So all rows of a person are in one stretch and in one block, and no row is elsewhere
        because rows of others are there or not. Where whole batches fill less than half of the
        room, as many rows of the next one are read as fit, person after person by their keys.
        """
        after = np.cumsum(came[::-1])[::-1]  # rows that came with a batch and later
        read, units, size, cut = list[Observations](), list[Keys](), 0, False
        for batch, own, later in zip(batches, came, after, strict=True):
            if batch.units is None:
                raise PrivacyError("rows do not say whose they are; make them with a store's door")
            most = most_rows(len(batch.encoder.schema.features))
            room = most - int(later - own)
            fits = own <= room
            if not fits and 2 * room <= most:
                continue
            counted = np.flatnonzero(np.broadcast_to(batch.weights > 0, len(batch)))
            if not fits:
                cut = True
                counted = counted[np.argsort(batch.units[counted], kind="stable")[:room]]
            read.append(batch.take(counted))
            units.append(batch.units[counted])
            size += min(own, room)
        made = cls.of(read, classes)
        # The upper half of a key decided who is read, where not all are.
        lower = np.concatenate([*units, np.zeros(0, np.uint64)]) & np.uint64(0xFFFFFFFF)
        places = (lower * np.uint64(size) >> np.uint64(32)).astype(np.int64)
        order = np.argsort(places, kind="stable")
        codes = np.ascontiguousarray(made.codes[:, order])
        found = cls(codes, made.labels[order], made.prior, places[order], size)
        found.cut = cut
        return found

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def features(self) -> int:
        """How many features there are."""
        return len(self.codes)

    def under(self, prior: Sequence[float] | NDArray[np.float64]) -> Coded:
        """The same rows under another prior; once for each, with what it knows."""
        whole = whole_prior(prior)
        known = self._under.get(whole.tobytes())
        if known is None:
            known = Coded(self.codes, self.labels, whole, self._places, self.came)
            known.cut, known.threads = self.cut, self.threads
            self._under[whole.tobytes()] = known
        return known

    @property
    def totals(self) -> NDArray[np.int64]:
        """How many rows have each label."""
        return np.bincount(self.labels, minlength=len(self.prior)).astype(np.int64)

    def blocks(self, number: int) -> list[Coded]:
        """The rows in so many blocks, by the places they came at: blanking moves no other row."""
        block = self._places * number // max(self.came, 1)
        return [
            Coded(self.codes[:, block == b], self.labels[block == b], self.prior)
            for b in range(number)
        ]

    def alone(self, features: Iterable[int]) -> NDArray[np.int64]:
        """Q of single features."""
        asked = list(features)
        self._learn([(f,) for f in asked])
        return np.array([self._scores[f,][0] for f in asked], dtype=np.int64)

    def scores(self, pairs: Sequence[Pair]) -> Scores:
        """Of groups, each given as the two parts it is made of; those asked last are kept."""
        if self._last is None or self._last[0] != list(pairs):
            self._last = list(pairs), self._scored(pairs)
        return self._last[1]

    def _scored(self, pairs: Sequence[Pair]) -> Scores:
        parts = sorted({part for pair in pairs for part in pair})
        place = {part: number for number, part in enumerate(parts)}
        codes = [self._codes(part) for part in parts]
        stacked = self.codes if self._all(parts) else np.stack(codes) if codes else self.codes[:0]
        ones = np.array([place[one] for one, _ in pairs], dtype=np.int64)
        others = np.array([place[other] for _, other in pairs], dtype=np.int64)
        quality, met, information = self._score(stacked, ones, others)
        self._learn(parts)
        known = [self._scores[part] for part in parts]
        if not pairs:
            return Scores(quality, quality, information)
        parts_i = np.array([i for _, _, i in known])
        said = [_said([known[i] for i in side], met) for side in (ones, others)]
        return Scores(
            quality,
            quality - said[0] - said[1],
            information - np.maximum(parts_i[ones], parts_i[others]),
        )

    def _all(self, parts: list[Group]) -> bool:
        """Whether these are all features, in order: no copy is needed then."""
        return parts == [(f,) for f in range(self.features)]

    def _codes(self, group: Group) -> Codes:
        if group not in self._joined:
            joined = np.empty(len(self), dtype=np.uint32)
            join_codes(self._codes(group[:-1]), self.codes[group[-1]], joined)
            self._joined[group] = joined
        return self._joined[group]

    def _learn(self, groups: Iterable[Group]) -> None:
        """Q, M and information of groups alone: of all at once, for a table is made each time."""
        new = [group for group in dict.fromkeys(groups) if group not in self._scores]
        if not new:
            return
        stacked = self.codes if self._all(new) else np.stack([self._codes(g) for g in new])
        places = np.arange(len(new))
        for group, *told in zip(new, *self._score(stacked, places, places), strict=True):
            quality, met, information = told
            self._scores[group] = int(quality), int(met), float(information)

    def _score(
        self, codes: Codes, ones: NDArray[np.int64], others: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        scores, met = np.zeros(len(ones), np.int64), np.zeros(len(ones), np.int64)
        told = np.zeros(len(ones))
        stretches = self._places * STRETCHES // max(self.came, 1)

        def score(some: slice) -> None:
            given = codes, ones[some], others[some], self.labels, stretches
            score_pairs(*given, len(self.prior), self.prior, scores[some], met[some], told[some])

        threads = min(self.threads, MOST_THREADS, max(len(ones), 1))
        ends = [len(ones) * each // threads for each in range(threads + 1)]
        parts = [slice(*ends[each : each + 2]) for each in range(threads)]
        if threads == 1:
            score(parts[0])
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(score, parts))
        return scores, met, told


def _said(parts: Sequence[tuple[int, int, float]], met: NDArray[np.int64]) -> NDArray[np.int64]:
    """What parts, each with its Q and M, say of groups with an M of their own.

    Products pass 64 bits, so they are Python's.
    """
    told = [
        int(group) * min(max(quality, 0), own // LEAST_ROWS) // max(own, 1)
        for (quality, own, _), group in zip(parts, met, strict=True)
    ]
    return np.array(told, dtype=np.int64)


def most_rows(features: int) -> int:
    """How many rows of so many features are read at most.

    >>> most_rows(39), most_rows(507)
    (1048576, 132364)
    """
    return min(MOST_ROWS, MOST_CODES // features)


def whole_prior(prior: Sequence[float] | NDArray[np.float64]) -> NDArray[np.int64]:
    """A prior in whole numbers that sum to WEIGHT.

    >>> whole_prior([0.25, 0.75]).tolist()
    [256, 768]
    """
    share = np.maximum(np.asarray(prior, dtype=np.float64), 0.0)
    ends = np.rint(np.cumsum(share) / max(float(share.sum()), 1e-300) * WEIGHT)
    return np.diff(ends, prepend=0).astype(np.int64)


def pairs_of(features: Sequence[int], excluded: Iterable[frozenset[int]] = ()) -> list[Pair]:
    """All pairs of features but those that are there already."""
    there = set(excluded)
    return [
        ((one,), (other,))
        for one, other in combinations(sorted(features), 2)
        if frozenset((one, other)) not in there
    ]


def grown(
    groups: Iterable[Group], features: Sequence[int], excluded: Iterable[frozenset[int]] = ()
) -> list[Pair]:
    """Groups with one more feature, each set of features once."""
    there, found = set(excluded), list[Pair]()
    for group in groups:
        for feature in sorted(features):
            whole = frozenset((*group, feature))
            if len(whole) > len(group) and whole not in there:
                there.add(whole)
                found.append((group, (feature,)))
    return found


__all__ = ["MOST_ROWS", "UNIT", "Coded", "Group", "Pair", "Scores", "grown", "pairs_of"]
