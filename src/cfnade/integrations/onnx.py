"""Export the predictions for a new user as an ONNX graph.

Inputs `items` and `levels` (n,): positions in the table of items and on the rating scale, both of
which are in the metadata of the file as JSON. Outputs `probabilities` (items, levels), before
calibration, and `prediction` (items,), the expected ratings.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import torch

from cfnade.exceptions import PredictionError
from cfnade.fitted_model import FittedModel
from cfnade.integrations.fold_in_export import FoldInModule, FoldInTables, fold_in_tables
from cfnade.utils.files import atomic_write

OPSET = 18


def export_onnx(fitted: FittedModel, path: Path) -> FoldInTables:
    """Write the graph to a file and return the tables that it holds."""
    tables, context = fold_in_tables(fitted), fitted.context
    try:
        import onnxscript  # noqa: F401  # torch.onnx needs it
    except ImportError as error:
        raise PredictionError(
            f"exporting to ONNX needs onnxscript ({error}); pip install 'cfnade[onnx]'"
        ) from error
    n = torch.export.Dim("n", min=0, max=2**31)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations within torch and onnxscript
        program = torch.onnx.export(
            FoldInModule(tables, context.scale.values),
            (torch.arange(3), torch.zeros(3, dtype=torch.int64)),
            input_names=["items", "levels"],
            output_names=["probabilities", "prediction"],
            dynamic_shapes=({0: n}, {0: n}),
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    titles = None if context.titles is None else context.titles[tables.items].tolist()
    metadata = {"item_ids": context.item_ids[tables.items].tolist(), "titles": titles}
    metadata |= {"scale": list(context.scale.values)}
    program.model.metadata_props.update(
        {name: json.dumps(value) for name, value in metadata.items()}
    )
    with atomic_write(path) as file:
        file.write(program.model_proto.SerializeToString())
    return tables
