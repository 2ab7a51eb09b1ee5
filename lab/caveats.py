"""Where each figure falls short, in a sentence."""

from __future__ import annotations

SHORTFALLS = {
    "q1": "On a few hundred hot rows networks and trees are not to be trusted; and where columns "
    "go along with each other, counts stay 1 to 2 % behind raw rows however many are hot.",
    "q2": "Noise is the same for few rows as for many: on 137,000 rows of Criteo ε = 1 costs "
    "2.5 %, and with k = 100 the aim of 3 % is missed on 45 million, too.",
    "noise": "Shares are chosen by hand here, from public knowledge of the data; a store reads "
    "them from rows, and not as well.",
    "shares": "On Criteo weights gain nothing to speak of, where the paper's network gained 0.5 %; "
    "and at ε = 0.1 weights that are read privately can be poor.",
    "values": "Values help a linear model of columns that go along with each other; on MovieLens "
    "they bring next to nothing, and trees and networks are not given them.",
    "q3": "On MovieLens groups bring much less than the paper's 1 %: with a twentieth of its rows "
    "the noise of their tables takes most of it.",
    "recall": "Noisy top-k needs hundreds of thousands of rows at ε = 1; on fewer it is chance, "
    "and the center of attention, which the paper proposes, is chance throughout.",
    "sketches": "All features are in sketches under equal shares, to tell the two apart; a store "
    "counts features of few values exactly, and loses less by either.",
    "bias": "The mean over values says nothing of a single one: the noise of a rare value's count "
    "is as large by the median.",
    "windows": "Losses are measured to 1,000 windows and no further: 800 rows a window are few, "
    "and the paper's thousand had a million each.",
    "window-noise": "It is noise, not loss; and 100,000 windows in the paper's tree have the noise "
    "of some 280 flat ones, not of 10.",
    "latency": "It is one machine without a network between; and while a model is trained the "
    "slowest predictions take several times as long.",
    "retraining": "Seconds are of a machine that may be busy, and the raw baselines are fast ones: "
    "with slower ones the ratio would be larger.",
    "regression": "Linear models get worse again with 30 % hot rows, and Vowpal Wabbit is erratic "
    "under noise.",
    "bandit": "The generated week is easier than news, whose articles come and go; and on the few "
    "clicks of Open Bandit nothing can be told apart.",
    "exposure": "Who stays sees every row that comes while they are there; and models are as raw "
    "as the hot rows that they were trained on.",
    "evolution": "A new feature, or a new group over rows that were counted already, still needs "
    "the raw history.",
    "wide": "507 tables share one budget: on 64,000 rows ε = 1 costs 10 %, and at 0.33 little is "
    "left.",
    "width": "Seconds of one run on this machine, good to a factor of about 1.5.",
    "tuning": "Grids are small, and each parameter was chosen on one end of one past.",
}
"""By figure. A test asks that none is without."""
