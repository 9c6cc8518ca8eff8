"""Every registered store keeps the contract."""

import pytest

from mlmodelscope.core.plugins import Registry
from mlmodelscope.store import STORE_GROUP
from mlmodelscope.testing.store import StoreContract

STORES = Registry(STORE_GROUP, kind="store")


def test_the_default_store_is_registered():
    assert "sqlite" in STORES.names()


@pytest.mark.parametrize("name", STORES.names())
class TestStores(StoreContract):
    @pytest.fixture
    def opening(self, name):
        return STORES.get(name)
