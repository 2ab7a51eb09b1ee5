"""Data stores for machine learning that an attacker cannot loot.

Names load when they are first used, so that ``pyramidion --help`` needs none of
NumPy, Arrow and numba.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = [
    "Admin",
    "Arrival",
    "AuditLog",
    "Broker",
    "BrokerServer",
    "Categorical",
    "Client",
    "Continuous",
    "CountFeaturizer",
    "Entry",
    "FailedError",
    "FlooredScaler",
    "FormatError",
    "Grant",
    "GrantedRows",
    "Groups",
    "Guarantee",
    "KeyHolderError",
    "Label",
    "LearningCurve",
    "Loss",
    "Model",
    "Models",
    "ObservationError",
    "Plan",
    "PrivacyError",
    "PrivateKey",
    "PublicKey",
    "Pyramid",
    "PyramidionError",
    "Receipt",
    "Request",
    "Revived",
    "Revocation",
    "Schema",
    "SchemaError",
    "Settings",
    "Shard",
    "SharedTables",
    "Snapshot",
    "StateError",
    "StorageError",
    "StreamShards",
    "TablePublisher",
    "TrainingSet",
    "Verification",
    "VowpalClassifier",
    "VowpalRegressor",
    "broker_at",
    "open_grant",
    "plan",
    "revoke_grant",
    "verify_lines",
]

_HOMES = {
    "pyramidion.store.observe": ("Arrival",),
    "pyramidion.storage.audit_chain": ("Entry", "Verification", "verify_lines"),
    "pyramidion.storage.audit_log": ("AuditLog",),
    "pyramidion.web.client": ("Client",),
    "pyramidion.counts.snapshot": ("Snapshot",),
    "pyramidion.errors": (
        "FailedError",
        "FormatError",
        "KeyHolderError",
        "ObservationError",
        "PrivacyError",
        "PyramidionError",
        "SchemaError",
        "StateError",
        "StorageError",
    ),
    "pyramidion.counts.guarantee": ("Guarantee",),
    "pyramidion.learn.curves": ("LearningCurve",),
    "pyramidion.learn.exports": ("Revived",),
    "pyramidion.learn.featurizer": ("CountFeaturizer",),
    "pyramidion.learn.losses": ("Loss",),
    "pyramidion.learn.models": ("Model",),
    "pyramidion.learn.scaling": ("FlooredScaler",),
    "pyramidion.learn.training_set": ("TrainingSet",),
    "pyramidion.learn.vowpal": ("VowpalClassifier", "VowpalRegressor"),
    "pyramidion.privacy.plan": ("Plan", "plan"),
    "pyramidion.config.schema": ("Categorical", "Continuous", "Label", "Schema"),
    "pyramidion.config.settings": ("Settings",),
    "pyramidion.store.admin": ("Admin",),
    "pyramidion.store.groups": ("Groups",),
    "pyramidion.store.models": ("Models",),
    "pyramidion.store.publish": ("TablePublisher",),
    "pyramidion.store.shard": ("Shard",),
    "pyramidion.store.shards": ("StreamShards",),
    "pyramidion.storage.hot": ("Receipt",),
    "pyramidion.storage.shared": ("SharedTables",),
    "pyramidion.store.pyramid": ("Pyramid",),
    "pyramidion.vault.broker": ("Broker",),
    "pyramidion.vault.broker_server": ("BrokerServer", "broker_at"),
    "pyramidion.vault.documents": ("Grant", "Request", "Revocation"),
    "pyramidion.vault.key_pairs": ("PrivateKey", "PublicKey"),
    "pyramidion.vault.reader": ("GrantedRows", "open_grant", "revoke_grant"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

if TYPE_CHECKING:
    from pyramidion.config.schema import Categorical, Continuous, Label, Schema
    from pyramidion.config.settings import Settings
    from pyramidion.counts.guarantee import Guarantee
    from pyramidion.counts.snapshot import Snapshot
    from pyramidion.errors import (
        FailedError,
        FormatError,
        KeyHolderError,
        ObservationError,
        PrivacyError,
        PyramidionError,
        SchemaError,
        StateError,
        StorageError,
    )
    from pyramidion.learn.curves import LearningCurve
    from pyramidion.learn.exports import Revived
    from pyramidion.learn.featurizer import CountFeaturizer
    from pyramidion.learn.losses import Loss
    from pyramidion.learn.models import Model
    from pyramidion.learn.scaling import FlooredScaler
    from pyramidion.learn.training_set import TrainingSet
    from pyramidion.learn.vowpal import VowpalClassifier, VowpalRegressor
    from pyramidion.privacy.plan import Plan, plan
    from pyramidion.storage.audit_chain import Entry, Verification, verify_lines
    from pyramidion.storage.audit_log import AuditLog
    from pyramidion.storage.hot import Receipt
    from pyramidion.storage.shared import SharedTables
    from pyramidion.store.admin import Admin
    from pyramidion.store.groups import Groups
    from pyramidion.store.models import Models
    from pyramidion.store.observe import Arrival
    from pyramidion.store.publish import TablePublisher
    from pyramidion.store.pyramid import Pyramid
    from pyramidion.store.shard import Shard
    from pyramidion.store.shards import StreamShards
    from pyramidion.vault.broker import Broker
    from pyramidion.vault.broker_server import BrokerServer, broker_at
    from pyramidion.vault.documents import Grant, Request, Revocation
    from pyramidion.vault.key_pairs import PrivateKey, PublicKey
    from pyramidion.vault.reader import GrantedRows, open_grant, revoke_grant
    from pyramidion.web.client import Client


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'pyramidion' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
