"""The forward pass for somebody new as an ONNX graph, for any runtime.

Inputs `items` and `levels` (n,): places in the table of items and on the scale (both are in the
file's metadata, as JSON). Outputs `chances` (items, levels), before calibration, and `expected`
(items,), in stars. An item that was given is answered as if it was to be rated once more.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from cfnade.fitted_model import FittedModel
from cfnade.integrations.fold_in_export import NadePart, Part, Portable, RidgePart, portable
from cfnade.utils.files import atomic_write

OPSET, IR = 17, 8
"""Old enough for runtimes of the last years."""
_ACTIVATIONS = {"tanh": "Tanh", "sigmoid": "Sigmoid", "relu": "Relu"}


def write_onnx(fitted: FittedModel, path: Path) -> Portable:
    """Write the graph into a file. Returns what went into it."""
    exported = portable(fitted)
    context = fitted.context
    model = _graph(exported, context.scale.array())
    titles = None if context.titles is None else context.titles[exported.items].tolist()
    about = {"item_ids": context.item_ids[exported.items].tolist(), "titles": titles}
    about |= {"scale": list(context.scale.values)}
    helper.set_model_props(model, {name: json.dumps(value) for name, value in about.items()})
    onnx.checker.check_model(model, full_check=True)
    with atomic_write(path) as file:
        file.write(model.SerializeToString())
    return exported


class _Nodes:
    """Names for what is computed: node after node, constants beside them."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def __call__(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, [*inputs], [name], **attributes))
        return name

    def named(self, name: str, of: str) -> None:
        self.nodes.append(helper.make_node("Identity", [of], [name]))

    def add(self, one: str, *others: str) -> str:
        for other in others:
            one = self("Add", one, other)
        return one

    def summed(self, table: Any, places: str, dtype: Any = np.float32) -> str:
        """The sum of the rows of a table at these places, even of none. (D,)."""
        rows = self("Gather", self.constant(table, dtype), places)
        return self("ReduceSum", rows, self.constant([0], np.int64), keepdims=0)


def _graph(given: Portable, values: Any) -> Any:
    nodes, K = _Nodes(), len(values)
    cell = nodes.add(nodes("Mul", "items", nodes.constant(K, np.int64)), "levels")
    mixed = []
    for share, parts in given.members:
        scores = nodes.add(*(_scores(nodes, part, cell) for part in parts))  # (M, K)
        chances = nodes("Softmax", scores, axis=1)
        mixed.append(nodes("Mul", chances, nodes.constant(share)))
    nobody = nodes("Equal", nodes("Size", cell), nodes.constant(0, np.int64))
    nodes.named(
        "chances", nodes("Where", nobody, nodes.constant(given.of_stranger), nodes.add(*mixed))
    )
    nodes.named("expected", nodes("MatMul", "chances", nodes.constant(values)))
    ints = [helper.make_tensor_value_info(n, TensorProto.INT64, ["n"]) for n in ("items", "levels")]
    shapes = {"chances": [len(given.items), K], "expected": [len(given.items)]}
    floats = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    graph = helper.make_graph(nodes.nodes, "cfnade", ints, floats, nodes.constants)
    opset = helper.make_opsetid("", OPSET)
    return helper.make_model(graph, opset_imports=[opset], ir_version=IR, producer_name="cfnade")


def _scores(nodes: _Nodes, part: Part, cell: str) -> str:
    """What a side says of every item (M, K), given the places item × K + level."""
    state = _nade(nodes, part, cell) if isinstance(part, NadePart) else _ridge(nodes, part, cell)
    shared = part.shared if isinstance(part, NadePart) else True
    V, b = (table.cumsum(1) if shared else table for table in (part.V, part.b))
    M, K, D = V.shape
    said = nodes("MatMul", nodes.constant(V.reshape(M * K, D)), state)
    return nodes.add(nodes("Reshape", said, nodes.constant([M, K], np.int64)), nodes.constant(b))


def _nade(nodes: _Nodes, part: NadePart, cell: str) -> str:
    """Eq. 2, 9, 20: the state (D,)."""
    table = part.W.cumsum(1) if part.shared else part.W
    state = nodes.summed(table.reshape(-1, table.shape[2]), cell)
    if part.mean_context is not None:
        count = nodes("Cast", nodes("Size", cell), to=TensorProto.FLOAT)
        most = nodes("Max", count, nodes.constant(1.0))
        ratio = nodes("Div", nodes.constant(part.mean_context), most)
        state = nodes("Mul", state, nodes("Sqrt", ratio))
    if part.B is not None:
        state = nodes("MatMul", nodes.constant(part.B), state)
    activation = _ACTIVATIONS[part.activation]
    state = nodes(activation, nodes.add(nodes.constant(part.c), state))
    for W, c in part.deep:
        inner = nodes("MatMul", nodes.constant(W), state)
        state = nodes(activation, nodes.add(nodes.constant(c), inner))
    return state if part.Q is None else nodes("MatMul", nodes.constant(part.Q), state)


def _ridge(nodes: _Nodes, part: RidgePart, cell: str) -> str:
    """(γ m, ω) (D + 1,), in doubles: a posterior is the inverse of a sum."""
    double, D = np.float64, len(part.prior)
    u = nodes("Gather", nodes.constant(part.u, double), "items")  # (n, D)
    told = nodes("MatMul", nodes("Transpose", u), u)
    spread = nodes.add(nodes.constant(part.prior, double), nodes.summed(part.q, "items", double))
    diagonal = nodes("Mul", nodes.constant(np.eye(D), double), spread)
    inverse = _inverse(nodes, nodes.add(told, diagonal), D)
    evidence = part.u[:, None] * part.e[:, :, None] + part.W.cumsum(1)  # (M, K, D)
    mean = nodes("MatMul", inverse, nodes.summed(evidence.reshape(-1, D), cell, double))
    weights = np.diag(part.importance / part.importance.sum())
    left = nodes("Mul", inverse, nodes.constant(weights, double))
    unknown = nodes("ReduceSum", left, nodes.constant([0, 1], np.int64), keepdims=0)
    noise = nodes.constant(part.noise, double)
    slope = nodes("Mul", unknown, nodes.constant(part.spread - part.noise, double))
    gain = nodes("Div", nodes.constant(part.spread, double), nodes.add(slope, noise))
    one = nodes.constant([1], np.int64)
    state = nodes("Concat", nodes("Mul", mean, gain), nodes("Reshape", unknown, one), axis=0)
    return nodes("Cast", state, to=TensorProto.FLOAT)


def _inverse(nodes: _Nodes, matrix: str, D: int) -> str:
    """Of a positive definite matrix (D, D), by Gauss and Jordan without pivots: ONNX has none."""
    unit = np.eye(D)
    both = nodes("Concat", matrix, nodes.constant(unit, np.float64), axis=1)  # (D, 2D)
    for k in range(D):
        index = nodes.constant([k], np.int64)
        row, column = nodes("Gather", both, index, axis=0), nodes("Gather", both, index, axis=1)
        row = nodes("Div", row, nodes("Gather", column, index, axis=0))
        rest = nodes("Sub", column, nodes.constant(unit[:, k : k + 1], np.float64))
        both = nodes("Sub", both, nodes("MatMul", rest, row))
    ends = [nodes.constant([n], np.int64) for n in (D, 2 * D, 1)]
    return nodes("Slice", both, *ends)
