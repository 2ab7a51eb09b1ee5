"""Many arrays as one argument: a kernel that takes a microsecond has no time to unpack twenty.

A bundle holds arrays that stay, and one small matrix of their addresses and shapes, which
is all that a kernel is given. It keeps the arrays alive as long as it lives itself; whoever
calls a kernel has the bundle, not only its matrix. Copies and pickles have addresses of
their own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.numpy_support import carray
from numpy.typing import NDArray

_ADDRESS, _ROWS, _COLUMNS = range(3)


class Bundle:
    """Arrays of one or two dimensions, each found by its number."""

    def __init__(self, *arrays: NDArray[Any]) -> None:
        self.arrays = tuple(map(np.ascontiguousarray, arrays))
        self.places = np.array(
            [(a.ctypes.data, a.shape[0], a.shape[-1]) for a in self.arrays], dtype=np.int64
        )

    def __reduce__(self) -> tuple[type[Bundle], tuple[NDArray[Any], ...]]:
        return type(self), self.arrays


def _to_pointer(typingctx: Any, address: Any) -> Any:  # noqa: ARG001
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), codegen


def _to_fetch(typingctx: Any, address: Any) -> Any:  # noqa: ARG001
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        pointer, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, word, word, word])
        find: Any = cgutils.get_or_insert_function
        fetch = find(builder.module, kind, "llvm.prefetch.p0")
        to_read, near, data = (ir.Constant(word, number) for number in (0, 3, 1))
        builder.call(fetch, [builder.inttoptr(args[0], pointer), to_read, near, data])
        return context.get_dummy_value()

    return types.void(types.int64), codegen


_pointer: Any = intrinsic(_to_pointer)
prefetch: Any = intrinsic(_to_fetch)
"""Have the processor fetch what is at an address, and go on without it."""


@njit(inline="always", cache=True)
def vector(places: Any, i: Any, dtype: Any) -> Any:
    """Array i of a bundle, of one dimension."""
    return carray(_pointer(places[i, _ADDRESS]), (places[i, _ROWS],), dtype)


@njit(inline="always", cache=True)
def matrix(places: Any, i: Any, dtype: Any) -> Any:
    """Array i of a bundle, of two dimensions."""
    return carray(_pointer(places[i, _ADDRESS]), (places[i, _ROWS], places[i, _COLUMNS]), dtype)
