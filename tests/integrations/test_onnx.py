"""The exported graph predicts for new users what the model predicts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from tests.integrations.exported import HISTORIES, KINDS, asked, predictor_of

from cfnade import CFNADE, synthetic
from cfnade.exceptions import PredictionError
from cfnade.integrations.onnx import export_onnx

pytest.importorskip("onnxscript")


@pytest.mark.parametrize("kind", KINDS)
def test_the_graph_says_what_the_model_says(kind: str, tmp_path: Path) -> None:
    predictor = predictor_of(kind)
    written = export_onnx(predictor.fitted, tmp_path / "model.onnx")
    assert len(written.items) == 37
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    for history in HISTORIES:
        pairs, rest, ids = asked(predictor, written.items, history)
        places = np.array(pairs, np.int64).reshape(-1, 2)
        found = session.run(None, {"items": places[:, 0], "levels": places[:, 1]})
        chances, expected = (
            dict(zip(["probabilities", "prediction"], found, strict=True))[name][rest]
            for name in ("probabilities", "prediction")
        )
        said = predictor.predict("new", ids, histories={"new": history}).predictions
        np.testing.assert_allclose(expected, said, atol=1e-5)
        np.testing.assert_allclose(chances.sum(1), 1, atol=1e-5)
        np.testing.assert_allclose(chances @ predictor.scale.array(), said, atol=1e-5)


def test_the_file_tells_items_and_scale(tmp_path: Path) -> None:
    predictor = predictor_of("plain")
    written = export_onnx(predictor.fitted, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["item_ids"]) == predictor.items.table[written.items].tolist()
    assert json.loads(about["scale"]) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("side", ["item", "both"])
def test_a_model_that_reads_others_ratings_cannot_go(side: str, tmp_path: Path) -> None:
    model = CFNADE(side=side, hidden=(4,), epochs=1, n_threads=1)
    model.fit(synthetic(30, 20, 300, seed=3).ratings)
    with pytest.raises(PredictionError, match=rf"side '{side}' reads more .*with side=\"user\"$"):
        export_onnx(model.fitted_, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())
