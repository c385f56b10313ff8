"""Vectors of sixteen numbers for Numba: loads, stores, arithmetic, exponential and logarithm.

A vector lives in one AVX-512 register, two of AVX2 or four of NEON (LLVM splits it). Loading and
storing need no alignment and check no bounds. Adding and multiplying may contract to one fused
operation; nothing else is reordered, and infinities and NaNs keep their meaning.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import extending
from numba.core import types
from numba.extending import models, register_model

LANES = 16
CONTRACT = ("contract",)

# Numba describes what these return by the Python function; to us it is a kernel's built-in.
intrinsic: Any = extending.intrinsic
overload: Any = extending.overload
pointer_to: Any = types.CPointer


class VectorType(types.Type):
    """LANES numbers of one dtype."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(name=f"Vector({dtype})")


@register_model(VectorType)
class VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: VectorType) -> None:
        single = kind.dtype == types.float32
        element = ir.FloatType() if single else ir.DoubleType()
        super().__init__(manager, kind, ir.VectorType(element, LANES))


def signature(*arguments: Any) -> Any:
    """Returns nothing; whole numbers are taken as indices, the rest as given."""
    integer = types.Integer
    return types.void(*(types.intp if isinstance(a, integer) else a for a in arguments))


def constant(kind: ir.VectorType, value: float) -> Any:
    """The vector whose lanes all hold the value."""
    return ir.Constant(kind, [value] * LANES)


def splat(builder: Any, value: Any) -> Any:
    """A vector whose lanes all hold the scalar."""
    first = builder.insert_element(
        ir.Constant(ir.VectorType(value.type, LANES), ir.Undefined), value, ir.IntType(32)(0)
    )
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(first, first, zeros)


def call_intrinsic(
    builder: Any, name: str, result: Any, arguments: Sequence[Any], fast: Any = ()
) -> Any:
    """Call an LLVM intrinsic by its full name."""
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    return builder.call(function, arguments, fastmath=fast)


def type_suffix(kind: ir.VectorType) -> str:
    """How LLVM spells the type in an intrinsic's name."""
    return f"v{LANES}f{'32' if isinstance(kind.element, ir.FloatType) else '64'}"


def element_pointer(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    """The address of array[index]; a pointer, or an array of one dimension without gaps."""
    bare = isinstance(kind, types.CPointer)
    start = array if bare else context.make_array(kind)(context, builder, array).data
    return builder.gep(start, [index])


def read_vector(builder: Any, data_pointer: Any) -> Any:
    """The vector that begins at the address of a scalar."""
    kind = ir.VectorType(data_pointer.type.pointee, LANES)
    value = builder.load(builder.bitcast(data_pointer, kind.as_pointer()))
    value.align = 4
    return value


def write_vector(builder: Any, value: Any, data_pointer: Any) -> None:
    """Store the vector from the address of a scalar on."""
    builder.store(value, builder.bitcast(data_pointer, value.type.as_pointer()), align=4)


def add(builder: Any, a: Any, b: Any) -> Any:
    return builder.fadd(a, b, flags=CONTRACT)


def multiply_add(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """a·b + c, one operation where the machine has it."""
    return builder.fadd(builder.fmul(a, b, flags=CONTRACT), c, flags=CONTRACT)


@intrinsic
def data_pointer(_, array):
    """Where an array's numbers begin.

    Inner functions take pointers: an array would be passed as seven values and counted as a
    reference, with an atomic operation each time. The caller keeps the array alive.
    """

    def generate(context, builder, kinds, args):
        return context.make_array(kinds.args[0])(context, builder, args[0]).data

    return pointer_to(array.dtype)(array), generate


@intrinsic
def offset(_, start, count):
    """The address so many numbers behind another."""

    def generate(_context, builder, _kinds, args):
        return builder.gep(args[0], [args[1]])

    return start(*signature(start, count).args), generate


@intrinsic
def as_int64_pointer(_, start):
    """The same address, of whole numbers of 64 bits."""

    def generate(context, builder, kinds, args):
        return builder.bitcast(args[0], context.get_value_type(kinds.return_type))

    return pointer_to(types.int64)(start), generate


@intrinsic
def load(_, array, index):
    """array[index:index+16]"""

    def generate(context, builder, kinds, args):
        return read_vector(
            builder, element_pointer(context, builder, kinds.args[0], args[0], args[1])
        )

    return VectorType(array.dtype)(*signature(array, index).args), generate


@intrinsic
def store(_, array, index, value):
    """array[index:index+16] = value"""

    def generate(context, builder, kinds, args):
        write_vector(
            builder, args[2], element_pointer(context, builder, kinds.args[0], args[0], args[1])
        )
        return context.get_dummy_value()

    return signature(array, index, value), generate


def _lanes_below(builder: Any, count: Any) -> Any:
    """The mask of the lanes below count."""
    lanes = ir.Constant(ir.VectorType(ir.IntType(64), LANES), list(range(LANES)))
    return builder.icmp_signed("<", lanes, splat(builder, count))


def _is_full(builder: Any, count: Any) -> Any:
    """Whether no lane is left out: a mask is dear to store by where there is no AVX-512."""
    return builder.icmp_signed(">=", count, count.type(LANES))


@intrinsic
def load_masked(_, array, index, count):
    """array[index:index+count], zeros behind; lanes from count on touch no memory."""

    def generate(context, builder, kinds, args):
        kind = context.get_value_type(kinds.return_type)
        data_pointer = element_pointer(context, builder, kinds.args[0], args[0], args[1])
        with builder.if_else(_is_full(builder, args[2])) as (every, partial):
            with every:
                full, end = read_vector(builder, data_pointer), builder.block
            with partial:
                start = builder.bitcast(data_pointer, kind.as_pointer())
                parts = (
                    start,
                    ir.IntType(32)(4),
                    _lanes_below(builder, args[2]),
                    constant(kind, 0.0),
                )
                masked = call_intrinsic(
                    builder, f"llvm.masked.load.{type_suffix(kind)}.p0", kind, parts
                )
                other_end = builder.block
        value = builder.phi(kind)
        value.add_incoming(full, end)
        value.add_incoming(masked, other_end)
        return value

    return VectorType(array.dtype)(*signature(array, index, count).args), generate


@intrinsic
def store_masked(_, array, index, value, count):
    """array[index:index+count] = value[:count]"""

    def generate(context, builder, kinds, args):
        kind = args[2].type
        data_pointer = element_pointer(context, builder, kinds.args[0], args[0], args[1])
        with builder.if_else(_is_full(builder, args[3])) as (every, partial):
            with every:
                write_vector(builder, args[2], data_pointer)
            with partial:
                start = builder.bitcast(data_pointer, kind.as_pointer())
                parts = (args[2], start, ir.IntType(32)(4), _lanes_below(builder, args[3]))
                call_intrinsic(
                    builder, f"llvm.masked.store.{type_suffix(kind)}.p0", ir.VoidType(), parts
                )
        return context.get_dummy_value()

    return signature(array, index, value, count), generate


@intrinsic
def prefetch(_, array, index):
    """Have the line of array[index] brought to the second-level cache while other work goes on."""

    def generate(context, builder, kinds, args):
        place = element_pointer(context, builder, kinds.args[0], args[0], args[1])
        to_read, second_level, data = (ir.IntType(32)(number) for number in (0, 2, 1))
        parts = builder.bitcast(place, ir.IntType(8).as_pointer()), to_read, second_level, data
        call_intrinsic(builder, "llvm.prefetch.p0", ir.VoidType(), parts)
        return context.get_dummy_value()

    return signature(array, index), generate


@intrinsic
def broadcast(_, array, value):
    """A vector of the array's dtype whose lanes all hold the value."""

    def generate(_context, builder, _kinds, args):
        return splat(builder, args[1])

    element = array.dtype if isinstance(value, types.Number) else value
    return VectorType(array.dtype)(array, element), generate


def _operator(function: Any, instruction: str) -> None:
    """Teach Numba the operator between two vectors."""

    @intrinsic
    def apply(_, a, b):
        def generate(_context, builder, _kinds, args):
            return getattr(builder, instruction)(args[0], args[1], flags=CONTRACT)

        return a(a, b), generate

    @overload(function)
    def choose(a, b):
        def implementation(a, b):
            return apply(a, b)

        vectors = isinstance(a, VectorType) and isinstance(b, VectorType)
        return implementation if vectors else None


_operator(operator.add, "fadd")
_operator(operator.sub, "fsub")
_operator(operator.mul, "fmul")
_operator(operator.truediv, "fdiv")


def _lanewise(name: str, doc: str) -> Any:
    """An LLVM intrinsic of one or two vectors, lane by lane."""

    def generate(_context, builder, _kinds, args):
        kind = args[0].type
        return call_intrinsic(builder, f"llvm.{name}.{type_suffix(kind)}", kind, args)

    def unary(_, a):
        return a(a), generate

    def binary(_, a, b):
        return a(a, b), generate

    function = unary if name == "sqrt" else binary
    function.__doc__ = doc
    return intrinsic(function)


sqrt = _lanewise("sqrt", "Square roots.")
maximum = _lanewise("maxnum", "The larger of each two.")
minimum = _lanewise("minnum", "The smaller of each two.")


@intrinsic
def select_le(_, a, b, yes, no):
    """yes where a <= b, else no, lane by lane."""

    def generate(_context, builder, _kinds, args):
        return builder.select(builder.fcmp_ordered("<=", args[0], args[1]), args[2], args[3])

    return yes(a, b, yes, no), generate


@intrinsic
def horizontal_sum(_, a):
    """The sum of the lanes."""

    def generate(_context, builder, _kinds, args):
        return reduce_add(builder, args[0])

    return a.dtype(a), generate


def reduce_add(builder: Any, value: Any) -> Any:
    """The sum of a vector's lanes, halved pairwise: a fixed order."""
    name = f"llvm.vector.reduce.fadd.{type_suffix(value.type)}"
    element = value.type.element
    return call_intrinsic(builder, name, element, (element(-0.0), value), fast=("reassoc",))


def _polynomial(builder: Any, x: Any, coefficients: Sequence[float]) -> Any:
    """Σ coefficients[i]·x^i by Horner's rule."""
    result = constant(x.type, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = multiply_add(builder, result, x, constant(x.type, coefficient))
    return result


def _float_format(kind: ir.VectorType) -> tuple[int, int, int]:
    """Bits of a float, bits of its mantissa, bias of its exponent."""
    return (32, 23, 127) if isinstance(kind.element, ir.FloatType) else (64, 52, 1023)


@intrinsic
def exp(_, a):
    """e^a for a <= 0, to the last bit or two; below the smallest normal float, that float."""

    def generate(_context, builder, _kinds, args):
        kind = args[0].type
        bits, mantissa, bias = _float_format(kind)
        single = bits == 32
        floor = constant(kind, -87.3 if single else -708.3)
        x = call_intrinsic(builder, f"llvm.maxnum.{type_suffix(kind)}", kind, (args[0], floor))
        # x = n·ln 2 + r with |r| <= ln 2 / 2; ln 2 in two parts, the first one exact times n.
        high = 0.693359375 if single else 0.693147180369123816490
        low = math.log(2.0) - high if single else 1.90821492927058770002e-10
        steps = builder.fmul(x, constant(kind, 1.0 / math.log(2.0)))
        n = call_intrinsic(builder, f"llvm.rint.{type_suffix(kind)}", kind, (steps,))
        r = multiply_add(builder, n, constant(kind, -high), x)
        r = multiply_add(builder, n, constant(kind, -low), r)
        terms = [1.0 / math.factorial(i) for i in range(8 if single else 14)]
        power = _polynomial(builder, r, terms)
        integer = ir.VectorType(ir.IntType(bits), LANES)
        scale = builder.add(builder.fptosi(n, integer), ir.Constant(integer, [bias] * LANES))
        scale = builder.shl(scale, ir.Constant(integer, [mantissa] * LANES))
        return builder.fmul(power, builder.bitcast(scale, kind))

    return a(a), generate


@intrinsic
def log(_, a):
    """ln a for normal a >= 1, to the last bit or two."""

    def generate(_context, builder, _kinds, args):
        kind = args[0].type
        bits, mantissa, bias = _float_format(kind)
        integer = ir.VectorType(ir.IntType(bits), LANES)

        def integers(value):
            return ir.Constant(integer, [value] * LANES)

        # a = 2^n·m with m in [√½, √2): the offset moves the seam of the exponent to √½.
        seam = (bias << mantissa) - int((1.0 - math.sqrt(0.5)) * 2.0 ** (mantissa + 1))
        raw = builder.sub(builder.bitcast(args[0], integer), integers(seam))
        n = builder.sitofp(builder.ashr(raw, integers(mantissa)), kind)
        fraction = builder.and_(raw, integers((1 << mantissa) - 1))
        m = builder.bitcast(builder.add(fraction, integers(seam)), kind)
        # ln m = 2·artanh(s), s = (m - 1)/(m + 1)
        ones = constant(kind, 1.0)
        s = builder.fdiv(builder.fsub(m, ones), builder.fadd(m, ones))
        terms = [2.0 / (2 * i + 1) for i in range(6 if bits == 32 else 12)]
        series = _polynomial(builder, builder.fmul(s, s), terms)
        return multiply_add(builder, n, constant(kind, math.log(2.0)), builder.fmul(s, series))

    return a(a), generate
