"""Sixteen numbers at a time, for the loops that the compiler does not turn into vectors by itself.

A sum kept in a variable of this kind stays in a register from the first term to the last. Compiled code only: `read` and
`write` touch sixteen numbers of an array, `spread` repeats one number, `multiply_add` is a b + c, `nonzero` and `lowest` help
to leave zeros out, `turn` exchanges rows and columns.
"""

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.datamodel import models
from numba.extending import intrinsic, register_model

LANES = 16  # one AVX-512 register of float32; on smaller machines the compiler uses several
FUSED = ("contract", "reassoc", "nsz", "arcp")


class LanesType(types.Type):
    """The type of sixteen numbers, as the compiler sees it."""

    def __init__(self, dtype: types.Float) -> None:
        self.dtype = dtype
        super().__init__(f"Lanes({dtype})")


@register_model(LanesType)
class _Model(models.PrimitiveModel):
    def __init__(self, dmm, fe_type) -> None:
        super().__init__(dmm, fe_type, _vector(fe_type.dtype))


def _vector(dtype: types.Float) -> ir.VectorType:
    return ir.VectorType(ir.FloatType() if dtype == types.float32 else ir.DoubleType(), LANES)


def _address(context, builder, array_type, array, at) -> Any:
    """Where in memory element `at` of a flat array lies, as the address of a vector."""
    data = context.make_array(array_type)(context, builder, value=array).data
    return builder.bitcast(builder.gep(data, [at]), _vector(array_type.dtype).as_pointer())


def _read(typing, array, at):
    """``array[at : at + 16]``."""

    def code(context, builder, signature, arguments):
        array_type = signature.args[0]
        place = _address(context, builder, array_type, *arguments)
        return builder.load(place, align=context.get_abi_sizeof(context.get_data_type(array_type.dtype)))

    return LanesType(array.dtype)(array, types.uint64), code


def _write(typing, array, at, values):
    """``array[at : at + 16] = values``."""

    def code(context, builder, signature, arguments):
        array_type = signature.args[0]
        place = _address(context, builder, array_type, *arguments[:2])
        builder.store(arguments[2], place, align=context.get_abi_sizeof(context.get_data_type(array_type.dtype)))
        return context.get_dummy_value()

    return types.void(array, types.uint64, values), code


def _spread(typing, number):
    """The same number sixteen times."""

    def code(context, builder, signature, arguments):
        vector = _vector(signature.args[0])
        whole = builder.insert_element(ir.Constant(vector, ir.Undefined), arguments[0], ir.Constant(ir.IntType(32), 0))
        order = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        return builder.shuffle_vector(whole, ir.Constant(vector, ir.Undefined), order)

    return LanesType(number)(number), code


def _multiply_add(typing, a, b, c):
    """``a * b + c``."""

    def code(context, builder, signature, arguments):
        product = builder.fmul(arguments[0], arguments[1], flags=FUSED)
        return builder.fadd(product, arguments[2], flags=FUSED)

    return a(a, b, c), code


def _nonzero(typing, array, at):
    """Sixteen bits: which of ``array[at : at + 16]`` are not zero."""

    def code(context, builder, signature, arguments):
        array_type = signature.args[0]
        place = _address(context, builder, array_type, *arguments)
        values = builder.load(place, align=context.get_abi_sizeof(context.get_data_type(array_type.dtype)))
        differs = builder.fcmp_unordered("!=", values, ir.Constant(values.type, [0.0] * LANES))
        return builder.zext(builder.bitcast(differs, ir.IntType(LANES)), ir.IntType(64))

    return types.uint64(array, types.uint64), code


def _lowest(typing, bits):
    """The number of the lowest bit that is set; there must be one."""

    def code(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), code


def _turn(squared: bool) -> Any:
    def typed(typing, source, at, stride, rows, into, to, step):
        """Sixteen times sixteen numbers, rows and columns exchanged; where there are fewer `rows`, the last one is repeated."""

        def code(context, builder, signature, arguments):
            source, at, stride, rows, into, to, step = arguments
            size = context.get_abi_sizeof(context.get_data_type(signature.args[0].dtype))
            number, last = rows.type, builder.sub(rows, ir.Constant(rows.type, 1))
            vectors = []
            for i in range(LANES):
                row = ir.Constant(number, i)
                row = builder.select(builder.icmp_unsigned("<", row, last), row, last)
                place = builder.add(at, builder.mul(row, stride))
                vectors.append(builder.load(_address(context, builder, signature.args[0], source, place), align=size))
            if squared:
                vectors = [builder.fmul(v, v) for v in vectors]
            half = LANES // 2
            low, high = (
                ir.Constant(
                    ir.VectorType(ir.IntType(32), LANES), [i // 2 + i % 2 * LANES + first for i in range(LANES)]
                )
                for first in (0, half)
            )
            # riffle the first half into the second; four riffles are a transposition
            for _ in range(LANES.bit_length() - 1):
                pairs = zip(vectors[:half], vectors[half:], strict=True)
                vectors = [builder.shuffle_vector(a, b, order) for a, b in pairs for order in (low, high)]
            for i, vector in enumerate(vectors):
                place = builder.add(to, builder.mul(ir.Constant(number, i), step))
                builder.store(vector, _address(context, builder, signature.args[4], into, place), align=size)
            return context.get_dummy_value()

        u = types.uint64
        return types.void(source, u, u, u, into, u, u), code

    return typed


read: Any = intrinsic(_read)
write: Any = intrinsic(_write)
spread: Any = intrinsic(_spread)
multiply_add: Any = intrinsic(_multiply_add)
nonzero: Any = intrinsic(_nonzero)
lowest: Any = intrinsic(_lowest)
turn: Any = intrinsic(_turn(squared=False))
turn_squares: Any = intrinsic(_turn(squared=True))
