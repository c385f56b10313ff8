"""Wrong input of every command: one message that helps, an exit code, no traceback."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from cfnade.cli.run_config import RunConfig

Shell = Any

# {csv} ratings, {user}, {item} … models, {empty} an empty folder, {new} a folder that is not there
CASES = [
    # train
    ("train --out {new}", "DATA is missing", 1),
    ("train {csv}", "missing option '--out'; see cfnade train --help", 2),
    (
        "train {csv} --out {new} --epoch 3",
        "no such option: --epoch (Possible options: --epochs)",
        2,
    ),
    ("trian {csv}", "no such command 'trian'. Did you mean 'train'? See cfnade --help", 2),
    ("nonsense", "no such command 'nonsense'; see cfnade --help", 2),
    ("data nonsense", "no such command 'nonsense'; see cfnade data --help", 2),
    ("--nonsense", "no such option: --nonsense", 2),
    # data
    ("data download ml-2m", "is neither a file or folder nor a data set", 1),
    ("data info {german}", "with --user, --item, --rating", 1),
    ("store import ratings.db {german}", "give them to: cfnade data convert DATA", 1),
    ("data info {csv} --scale five", "scale 'five' is not understood", 1),
    ("data info {csv} --bins 1", "bins (=1) must be", 1),
    ("data info {csv} --bins x", "--bins: must be a valid integer", 2),
    ("data info {csv} --duplicates some", "--duplicates some: must be one of error, first", 1),
    ("data info {once} --user nobody", "nobody", 1),
    ("data info {csv} --time 3 --no-time", "--time and --no-time exclude each other", 1),
    ("data info {once} --encoding klingon", "--encoding klingon is not known", 1),
    ("data convert {csv} out.csv", "must end in .parquet", 1),
    ("data convert {csv}", "missing argument 'OUT'", 2),
    ("data split {csv} paper --out x", "write paper:SEED", 1),
    ("data split {csv} paper:0 --out {csv}", "is a file; give a folder", 1),
    ("train nowhere.csv --out {new}", "no such file or folder", 1),
    ("train {csv} --out {new} --split papr:0", "did you mean paper:1", 1),
    ("train {csv} --out {new} --recipe ml-1m-itm", "unknown recipe 'ml-1m-itm'", 1),
    (
        "train {csv} --out {new} --side movie",
        '--side movie: must be "user", "item" or "both"',
        1,
    ),
    ("train {csv} --out {new} --hidden wide", "write sizes such as 500 or 500,500", 1),
    ("train {csv} --out {new} --hidden 0", "--hidden 0: must be a list of at least 1 value", 1),
    ("train {csv} --out {new} --hidden 8 --factors 9", "--factors 9: must not exceed", 1),
    ("train {csv} --out {new} --ordinal-weight 1.5", "--ordinal-weight 1.5: must be", 1),
    ("train {csv} --out {new} --epochs -1", "--epochs -1: must be a whole number of at least", 1),
    ("train {csv} --out {new} --epochs many", "integer", 2),
    (
        "train {csv} --out {new} --learning-rate -1",
        "--learning-rate -1.0: must be a number above 0",
        1,
    ),
    ("train {csv} --out {new} --n-threads 0", "--n-threads: must be", 2),
    ("train {csv} --out {new} --device toaster", "device", 1),
    ("train {csv} --out {new} --init-model {empty}", "{empty}", 1),
    ("train {csv} --out {new} --init-model {item} --side user", "cannot be continued", 1),
    ("train --resume --out {empty}", "holds no interrupted run", 1),
    ("train {csv} --out {new} --recipe {none}", "training setting epochs (=-1)", 1),  # not --epochs
    ("train /dev/zero --out {new}", "/dev/zero: is not a regular file", 1),
    ("train --resume --out {run_empty}", "cannot be resumed: data is missing", 1),
    ("train --resume --out {run_wrong}", "option split (=3) must be a string", 1),
    ("train {csv} --out {new} --scale 1-3", "is off the scale 1–3", 1),
    ("train {csv} --out {new} --side both --recipe default", "recipe default is for side user", 1),
    ("train {csv} --out {new} --n-seeds 0", "--n-seeds 0: must be", 1),
    ("train {csv} --out {new} --side both --without-context", "train with --side user to share", 1),
    ("train {csv} --out {new} --side auto --epochs 3", "--side auto chooses models itself", 1),
    ("train {csv} --out {new} --side user --time-budget 3", "--time-budget 3.0: is for --side", 1),
    ("train {csv} --out {new} --without-context", "train with --side user to share a model", 1),
    # evaluate
    ("evaluate {new}", "{new}", 1),
    ("evaluate {empty}", "{empty}", 1),
    ("evaluate {csv}", "{csv}", 1),
    ("evaluate {user} nowhere.csv", "no such file or folder", 1),
    ("evaluate {user} {pairs}", "has no ratings to evaluate the model on; name their column", 1),
    ("train {csv} --out {csv}", "is a file; give a folder with --out", 1),
    ("train {csv} --out {csv}/model", "is a file; give a folder with --out", 1),
    ("recommend {user} --user 3 --candidate-item 7 --min-ratings 99999", "no item is left to", 0),
    ("evaluate {user} {csv}", "are among the ratings that the model conditions on", 1),
    ("evaluate {user} --scale 1-5", "no such option: --scale", 2),
    ("evaluate {user} --k 5", "--k is for ranking metrics; give --ranking too", 1),
    ("evaluate {user} --ranking --k five", "--k five: must be a whole number", 1),
    ("evaluate {user} --ranking --threshold 9", "--threshold 9.0: must be a number in 1.0..5.0", 1),
    ("evaluate {user} --ranking --max-users 0", "--max-users: must be", 2),
    # batch, shard
    ("batch recommend {user}", "missing option '--out'", 2),
    ("batch recommend {user} nowhere --out l", "no such file or folder", 1),
    ("batch recommend {user} --user 3 --out l", "no such option: --user", 2),
    ("batch evaluate {user} --out l", "missing argument 'DATA'", 2),
    ("batch predict {user} x.csv --engine dask --out l", "--engine: 'dask' is not one of", 2),
    ("data shard {csv} --out {new} --valid 1", "--valid 1.0: must be a number", 1),
    (
        "data shard {csv} --out {new} --workers 0",
        "--workers: must be greater than or equal to 1",
        2,
    ),
    ("data shard {csv} --out {new} --scale 1-5 --bins 3", "--scale and --bins exclude each", 1),
    # predict
    ("predict {user} {pairs} --out nowhere/out.csv", "there is no folder nowhere; create it", 1),
    ("predict {user} {pairs} --out {empty}.csv", "is a folder; name a file to write", 1),
    ("predict {user} {doubled}", "2 columns are named user; keep one", 1),
    ("predict {user} {huge}", "user '9223372036854775808': an id is a whole number from", 1),
    ("predict {user} nowhere.csv", "there is no such file", 1),
    ("predict {user} {csv} --out out.xlsx", "must end in .parquet or .csv", 1),
    ("predict {user} {text}", "has no column user (userid, user, reviewerid …)", 1),
    ("predict {user} {letters}", "user ids of this model are whole numbers", 1),
    ("predict {user} {gap}", "item is missing; fill it in", 1),
    (
        "predict {user} {pairs} --timestamp 2005-09-06",
        "--timestamp 2005-09-06: predictions of this model do not depend on time",
        1,
    ),
    (
        "predict {timed} {pairs}",
        "give a column time, or one time for all with --timestamp",
        1,
    ),
    (
        "predict {timed} {pairs} --timestamp noon",
        "--timestamp: time 'noon' is neither a number nor a date",
        1,
    ),
    ("predict {timed} {late}", "late.csv:3: time 'noon' is neither a number nor a date", 1),
    ("recommend {timed} --user 1", "makes no lists or explanations", 1),
    # recommend
    ("recommend {user}", "give one user: --user ID", 1),
    ("recommend {user} --user me", "user ids of this model are whole numbers", 1),
    ("recommend {user} --user 1 3=5", "give one user: --user ID", 1),
    ("recommend {user} 3=7", "scale", 1),
    ("recommend {user} 3", "write an item and its rating", 1),
    ("recommend {user} 3=good", "write an item and its rating", 1),
    ("recommend {user} Nothing=4", "neither an item id nor part of a title", 1),
    ("recommend {user} --user 1 -n 0", "-n: must be greater than or equal to 1", 2),
    ("recommend {user} --history nowhere.csv", "there is no such file", 1),
    ("recommend {user} --history {bad}", ":2: rating 'x' is not a number", 1),
    ("recommend {user} --history {blank}", "is empty; give CSV with a header, in UTF-8, or", 1),
    ("recommend {user} --history {null}", ":2: a NUL byte: this is not text, or it is damaged", 1),
    ("recommend {user} --history {again}", ":4: item 3 is rated more than once", 1),
    ("recommend {user} --history {once} 3=4", "'3=4': item 3 is rated more than once", 1),
    ("recommend {user} --user 9223372036854775808", "an id is a whole number from", 1),
    ("recommend {item} 3=5", "train one with --side user", 1),
    (
        "recommend {user} --user 1 --threshold 9 --rank-by threshold",
        "--threshold 9.0: must be above 1",
        1,
    ),
    (
        "recommend {user} --user 1 --rank-by best",
        "--rank-by best: must be one of interaction, prediction",
        1,
    ),
    ("recommend {user} --user 1 --min-ratings -1", "--min-ratings -1: must be", 1),
    ("recommend {titles} Runer=5", "did you mean: Blade Runner (1982)", 1),
    # explain
    ("explain {user} 20 --user 4444", "give --history for a new user", 1),
    # export, tune
    ("export onnx {user} x", "must end in .onnx", 1),
    ("export site {user} {csv}", "is not a folder", 1),
    (
        "export recommendations {user} nowhere/out.csv",
        "there is no folder nowhere; create it first",
        1,
    ),
    ("tune {csv} --out {new} --trials 0", "--trials: must be", 2),
    (
        "export embeddings {user} out.csv --side film",
        "--side: 'film' is not one of",
        2,
    ),
    ("tune {csv} --out {new} --recipe nonsense", "unknown recipe 'nonsense'", 1),
]


WRONG_RUN = RunConfig(data="x", recipe="default", side="user").to_json() | {"split": 3}
FILES = {
    "none.toml": "[training]\nepochs = -1\n",
    "run_empty/run.json": "{}",
    "run_wrong/run.json": json.dumps(WRONG_RUN),
    "pairs.csv": "user,item\n1,3\n",
    "late.csv": "user,item,time\n1,3,2005-09-06\n1,4,noon\n",
    "doubled.csv": "user,user,item\n1,2,3\n",
    "huge.csv": "user,item\n1,3\n9223372036854775808,3\n",
    "german.csv": "Kunde;Artikel;Sterne;Ort;Land\na;b;5;Köln;D\nc;d;3;Bonn;D\n",
    "once.csv": "item,rating\n3,5\n",
    "again.csv": "item,rating\n3,5\n4,1\n3,2\n",
    "text.csv": "some text\nwithout columns\n",
    "letters.csv": "user,item\nanna,3\n",
    "gap.csv": "user,item\n1,3\n2,\n",
    "bad.csv": "item,rating\n3,x\n",
    "blank.csv": "\n",
    "null.csv": "item,rating\n3,\0\n",
}


@pytest.fixture(scope="module")
def names(
    ratings_file: Path,
    user_model: Path,
    item_model: Path,
    titles_model: Path,
    timed_model: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Path]:
    """What the commands below name, most of it broken in its own way."""
    folder = tmp_path_factory.mktemp("wrong")
    names = {"csv": ratings_file, "user": user_model, "item": item_model}
    names |= {"titles": titles_model, "timed": timed_model}
    names |= {name: folder / name for name in ("empty", "pipe")}
    names["empty"].mkdir()
    (folder / "empty.csv").mkdir()
    os.mkfifo(names["pipe"])
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        names[name.split("/")[0].split(".")[0]] = path.parent if "/" in name else path
    return names


@pytest.mark.parametrize(("line", "message", "code"), CASES, ids=[case[0] for case in CASES])
def test_wrong_input(
    shell: Shell,
    line: str,
    message: str,
    code: int,
    names: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    names = names | {"new": tmp_path / "new"}
    done = shell(*(part.format(**names) for part in line.split()))
    assert done.code == code, done.err
    assert message.format(**names) in done.said
    assert "Traceback" not in done.err
    assert [path for path in tmp_path.rglob("*") if path != names["new"]] == []


def test_a_damaged_model_is_refused_by_every_command(
    shell: Shell, user_model: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(user_model, broken)
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-20])
    for command in (["evaluate"], ["recommend", "--user", "1"], ["explain", "3", "--user", "1"]):
        done = shell(command[0], broken, *command[1:])
        assert done.code == 1
        assert "broken" in done.said
        assert "Traceback" not in done.err
