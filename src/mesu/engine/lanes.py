"""Sixteen numbers at a time, for the loops that the compiler does not turn into vectors by itself.

A sum kept in a variable of this kind stays in a register from the first term to the last. Compiled code only: `read` and
`write` touch sixteen numbers of an array, `spread` repeats one number, `multiply_add` is a b + c, `nonzero` and `lowest` help
to leave zeros out, `turn` exchanges rows and columns. `+ - * /` work on them, and `root`, as a rule uses them. `fused` and
`total` are sums that may not be reordered: they have the same bits wherever they are compiled. `larger`, `size` and `highest`,
and `unite`, `united` and `united_size`, find how large numbers are.
"""

import operator
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.extending import intrinsic, overload, register_model

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


def _operation(name: str) -> Any:
    def typed(typing, a, b):
        """An operator on lanes, or on lanes and a number."""
        lanes = a if isinstance(a, LanesType) else b

        def code(context, builder, signature, arguments):
            values = [
                value if isinstance(kind, LanesType) else _spread_out(builder, value)
                for kind, value in zip(signature.args, arguments, strict=True)
            ]
            return getattr(builder, name)(*values, flags=FUSED)

        return lanes(a, b), code

    return typed


def _spread_out(builder, number) -> Any:
    vector = ir.VectorType(number.type, LANES)
    whole = builder.insert_element(ir.Constant(vector, ir.Undefined), number, ir.Constant(ir.IntType(32), 0))
    order = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(whole, ir.Constant(vector, ir.Undefined), order)


def _elementary(builder, name: str, arguments, flags: tuple[str, ...] = ()) -> Any:
    """A call of one of LLVM's functions, of lanes or of numbers."""
    kind = arguments[0].type
    number = kind.element if isinstance(kind, ir.VectorType) else kind
    suffix = (f"v{LANES}" if kind is not number else "") + ("f32" if isinstance(number, ir.FloatType) else "f64")
    signature = ir.FunctionType(kind, [kind] * len(arguments))
    function = cgutils.get_or_insert_function(builder.module, signature, f"llvm.{name}.{suffix}")
    return builder.call(function, arguments, fastmath=flags)


def _square_root(typing, values):
    """The square root of each."""

    def code(context, builder, signature, arguments):
        return _elementary(builder, "sqrt", arguments, FUSED)

    return values(values), code


def _fused(typing, a, b, c):
    """``a * b + c``, rounded once where the machine can: the same bits in every place. Of lanes, or of numbers."""

    def code(context, builder, signature, arguments):
        if FMA:
            return _elementary(builder, "fma", arguments)
        return builder.fadd(builder.fmul(*arguments[:2]), arguments[2])

    return a(a, b, c), code


def _larger(typing, a, b):
    """The larger of each two numbers that are not negative, of lanes or of numbers."""

    def code(context, builder, signature, arguments):
        return _maximum(builder, *arguments)

    return a(a, b), code


def _size(typing, values):
    """The absolute values, of lanes or of a number."""

    def code(context, builder, signature, arguments):
        return _elementary(builder, "fabs", arguments)

    return values(values), code


def _bits(kind) -> Any:
    number = kind.element if isinstance(kind, ir.VectorType) else kind
    integer = ir.IntType(32 if isinstance(number, ir.FloatType) else 64)
    return integer if kind is number else ir.VectorType(integer, LANES)


def _maximum(builder, a, b) -> Any:
    # bits of numbers that are not negative have the order of the numbers; integers have execution units to themselves
    kind, bits = a.type, _bits(a.type)
    a, b = builder.bitcast(a, bits), builder.bitcast(b, bits)
    return builder.bitcast(builder.select(builder.icmp_signed(">", a, b), a, b), kind)


def _united(builder, a, b) -> Any:
    kind, bits = a.type, _bits(a.type)
    return builder.bitcast(builder.or_(builder.bitcast(a, bits), builder.bitcast(b, bits)), kind)


def _unite(typing, a, b):
    """The bits of both together, of lanes or of numbers: in size at least as large as each, and found in one operation."""

    def code(context, builder, signature, arguments):
        return _united(builder, *arguments)

    return a(a, b), code


def _united_size(typing, number):
    """A finite bound of |x| for all numbers whose bits are united. Close to the largest below 2; above 2 it may be far off."""

    def code(context, builder, signature, arguments):
        (number,) = arguments
        bits = _bits(number.type)
        inf, sign = (0x7F800000, 0x7FFFFFFF) if bits.width == 32 else (0x7FF0000000000000, 0x7FFFFFFFFFFFFFFF)
        size = builder.and_(builder.bitcast(number, bits), ir.Constant(bits, sign))
        largest = ir.Constant(bits, inf - 1)
        return builder.bitcast(builder.select(builder.icmp_unsigned("<", size, largest), size, largest), number.type)

    return number(number), code


def _folded(combine: Any) -> Any:
    def typed(typing, values):
        """Sixteen numbers made one, halves first."""

        def code(context, builder, signature, arguments):
            (vector,) = arguments
            for half in (8, 4, 2, 1):
                order = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [(i + half) % LANES for i in range(LANES)])
                vector = combine(builder, vector, builder.shuffle_vector(vector, vector, order))
            return builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))

        return values.dtype(values), code

    return typed


FMA = bool(llvm.get_host_cpu_features().get("fma", False))
square_root: Any = intrinsic(_square_root)
fused: Any = intrinsic(_fused)
larger: Any = intrinsic(_larger)
size: Any = intrinsic(_size)
total: Any = intrinsic(_folded(lambda builder, a, b: builder.fadd(a, b)))
highest: Any = intrinsic(_folded(_maximum))
unite: Any = intrinsic(_unite)
united: Any = intrinsic(_folded(_united))
united_size: Any = intrinsic(_united_size)


def _define(symbol: Any, name: str) -> None:
    operation: Any = intrinsic(_operation(name))

    def define(a, b):
        if isinstance(a, LanesType) or isinstance(b, LanesType):
            return lambda a, b: operation(a, b)
        return None

    overload(symbol)(define)


for _symbol, _name in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _define(_symbol, _name)

read: Any = intrinsic(_read)
write: Any = intrinsic(_write)
spread: Any = intrinsic(_spread)
multiply_add: Any = intrinsic(_multiply_add)
nonzero: Any = intrinsic(_nonzero)
lowest: Any = intrinsic(_lowest)
turn: Any = intrinsic(_turn(squared=False))
turn_squares: Any = intrinsic(_turn(squared=True))
