"""Pictures of what was kept: every patch in its place, whatever the layout."""

import base64
import json
import shutil
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from analysis import retention_map
from analysis.errors import ResultsError
from analysis.kept import samples
from analysis.runs import load

FIXTURE = Path(__file__).parent / "fixture" / "next"
#: text, a 2 x 2 picture, its tiles of 2 x 3 with a newline after each row, two frames around a timestamp
TOKENS = ["see", *[None] * 4, *[None] * 8, "<0.5>", *[None] * 2, "why", " $x_1$?"]
BLOCKS = [
    {"kind": "image", "start": 1, "rows": 2, "columns": 2, "newline": 0, "end": 0},
    {"kind": "tile", "start": 5, "rows": 2, "columns": 3, "newline": 1, "end": 0},
    {"kind": "frame", "start": 14, "rows": 1, "columns": 2, "newline": 0, "end": 0},
]


@pytest.fixture
def folder(tmp_path):
    """A results folder with one sample, whose layer 0 keeps position 6 in all heads and 2 in one of two heads."""
    root = tmp_path / "results"
    for run in ("full", "tgv_kv-0.95"):
        shutil.copytree(FIXTURE / run, root / run)
    content = json.loads((root / "tgv_kv-0.95" / "result.vizwiz_vqa_val.json").read_text())
    kept = np.zeros((2, 2, len(TOKENS)), bool)
    kept[0, :, 6] = kept[0, 1, 2] = kept[1, :, :3] = True
    bits = base64.b64encode(zlib.compress(np.packbits(kept).tobytes())).decode()
    proof = {"kept": {"shape": list(kept.shape), "bits": bits}, "prompt": "one", "kept_text": [0, 1]}
    proof |= {"retention_achieved": 0.05, "kv_bytes_kept": 1, "kv_bytes_full": 20}
    record = {"task": "vizwiz_vqa_val", "doc_id": 3, "repeat": 0, "status": "ok", "answer": "<b>$5$</b>", "time": 1}
    record |= {"eviction": proof | {"kept_vision": [1.5, 2]}, "schema": 2, "fingerprint": content["fingerprint"]}
    place = root / "records" / content["fingerprint"]
    place.mkdir(parents=True)
    (place / "records.rank0.jsonl").write_text(json.dumps(record) + "\n")
    prompts = root / "records" / "prompts"
    prompts.mkdir()
    blocks = [block | {"file": f"one.{i}.jpg"} for i, block in enumerate(BLOCKS)]
    (prompts / "one.json").write_text(json.dumps({"schema": 1, "tokens": TOKENS, "blocks": blocks}))
    for block in blocks:
        Image.new("RGB", (40 * block["columns"], 40 * block["rows"]), "white").save(prompts / block["file"])
    return root


def the_sample(folder):
    (found,) = samples(load(folder))
    return found


def test_positions_become_cells_and_newlines_none(folder):
    sample = the_sample(folder)
    assert sample.grid(BLOCKS[0], 0).tolist() == [[0, 0.5], [0, 0]]
    assert sample.grid(BLOCKS[1], 0).tolist() == [[0, 1, 0], [0, 0, 0]]
    assert sample.grid(BLOCKS[0], 1).tolist() == [[1, 1], [0, 0]]
    assert sample.on_text()[0] == 0.5


def test_the_picture_is_clear_where_a_patch_was_kept_and_veiled_elsewhere(folder):
    sample = the_sample(folder)
    faded = retention_map._faded(sample.prompt.picture({"file": "one.1.jpg"}), sample.grid(BLOCKS[1], 0))
    cells = np.asarray(Image.fromarray(faded).resize((3, 2), Image.Resampling.BOX))[..., 0].astype(int)
    veiled = round(0.3 * 255 + 0.7 * 150)
    assert cells.tolist() == [[veiled, 255, veiled], [veiled, veiled, veiled]]


def test_pictures_of_a_prompt_stand_side_by_side(folder):
    field = retention_map._mosaic(the_sample(folder), 0)
    assert field.shape == (240 * 2 + 4, 240 * 2 + 4, 3)


@pytest.mark.parametrize("width", ["264", "85"])
def test_the_command_draws_it(folder, tmp_path, width):
    stem = tmp_path / "map"
    assert retention_map.main([str(folder), "--width", width, "--output", str(stem), "--formats", "png,svg"]) == 0
    assert (tmp_path / "map.png").stat().st_size > 5000
    assert (tmp_path / "map.svg").is_file()


def test_what_is_not_there_is_named(folder, capsys):
    for option, value, message in (
        ("--methods", "snapkv", "--methods snapkv: kept entries at 0.05 are known of tgv_kv"),
        ("--retention", "0.5", "--retention 0.5: kept entries are known at 0.05"),
        ("--layers", "7", "--layers 7: the model has layers 0 to 1"),
        ("--task", "chartqa", "says what was kept: run again with KV_RECORD_KEPT=1 KV_RECORDS_DIR="),
    ):
        assert retention_map.main([str(folder), option, value, "--output", str(folder / "x")]) == 2
        assert message in capsys.readouterr().err


def test_a_prompt_that_is_gone_is_named(folder):
    (folder / "records" / "prompts" / "one.json").unlink()
    with pytest.raises(ResultsError, match=r"one.json: the prompt behind a record is missing"):
        _ = the_sample(folder).prompt
