"""What was exposed between two moments, and to whom.

lives       when hot steps and windows came, were there, and went
exposed     what is told of an interval
answer      the answer, made of lives, ledger and audit log
text        its sentences and tables
timeline    its picture
page        all of it on one page
"""

from __future__ import annotations

from pyramidion.store.exposure.answer import exposure_of, interval, persons_of, within
from pyramidion.store.exposure.exposed import Component, Exposure

__all__ = ["Component", "Exposure", "exposure_of", "interval", "persons_of", "within"]
