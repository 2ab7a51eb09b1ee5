from tests.store.conftest import stand

__all__ = ["stand"]
