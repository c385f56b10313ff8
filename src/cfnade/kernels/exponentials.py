"""Exponential and logarithm of a vector: powers of two are taken out, then a short series."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from cfnade.kernels.simd import LANES, call, constant, intrinsic, multiply_add, suffix


def _polynomial(builder: Any, x: Any, coefficients: Sequence[float]) -> Any:
    """Σ coefficients[i]·x^i by Horner's rule."""
    result = constant(x.type, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = multiply_add(builder, result, x, constant(x.type, coefficient))
    return result


def _format(kind: ir.VectorType) -> tuple[int, int, int]:
    """Bits of a float, bits of its mantissa, bias of its exponent."""
    return (32, 23, 127) if isinstance(kind.element, ir.FloatType) else (64, 52, 1023)


@intrinsic
def exp(_: Any, a: Any) -> Any:
    """e^a for a <= 0, to the last bit or two; below the smallest normal float, that float."""

    def generate(_context: Any, builder: Any, _kinds: Any, args: Any) -> Any:
        kind = args[0].type
        bits, mantissa, bias = _format(kind)
        single = bits == 32
        floor = constant(kind, -87.3 if single else -708.3)
        x = call(builder, f"llvm.maxnum.{suffix(kind)}", kind, (args[0], floor))
        # x = n·ln 2 + r with |r| <= ln 2 / 2; ln 2 in two parts, the first one exact times n.
        high = 0.693359375 if single else 0.693147180369123816490
        low = math.log(2.0) - high if single else 1.90821492927058770002e-10
        steps = builder.fmul(x, constant(kind, 1.0 / math.log(2.0)))
        n = call(builder, f"llvm.rint.{suffix(kind)}", kind, (steps,))
        r = multiply_add(builder, n, constant(kind, -high), x)
        r = multiply_add(builder, n, constant(kind, -low), r)
        terms = [1.0 / math.factorial(i) for i in range(8 if single else 14)]
        power = _polynomial(builder, r, terms)
        whole = ir.VectorType(ir.IntType(bits), LANES)
        scale = builder.add(builder.fptosi(n, whole), ir.Constant(whole, [bias] * LANES))
        scale = builder.shl(scale, ir.Constant(whole, [mantissa] * LANES))
        return builder.fmul(power, builder.bitcast(scale, kind))

    return a(a), generate


@intrinsic
def log(_: Any, a: Any) -> Any:
    """ln a for normal a >= 1, to the last bit or two."""

    def generate(_context: Any, builder: Any, _kinds: Any, args: Any) -> Any:
        kind = args[0].type
        bits, mantissa, bias = _format(kind)
        whole = ir.VectorType(ir.IntType(bits), LANES)

        def integers(value: int) -> Any:
            return ir.Constant(whole, [value] * LANES)

        # a = 2^n·m with m in [√½, √2): the offset moves the seam of the exponent to √½.
        seam = (bias << mantissa) - int((1.0 - math.sqrt(0.5)) * 2.0 ** (mantissa + 1))
        raw = builder.sub(builder.bitcast(args[0], whole), integers(seam))
        n = builder.sitofp(builder.ashr(raw, integers(mantissa)), kind)
        fraction = builder.and_(raw, integers((1 << mantissa) - 1))
        m = builder.bitcast(builder.add(fraction, integers(seam)), kind)
        # ln m = 2·artanh(s), s = (m - 1)/(m + 1)
        one = constant(kind, 1.0)
        s = builder.fdiv(builder.fsub(m, one), builder.fadd(m, one))
        terms = [2.0 / (2 * i + 1) for i in range(6 if bits == 32 else 12)]
        series = _polynomial(builder, builder.fmul(s, s), terms)
        return multiply_add(builder, n, constant(kind, math.log(2.0)), builder.fmul(s, series))

    return a(a), generate
