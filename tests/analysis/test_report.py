"""The report in a real browser: it loads without network, sorts, and shows markup in answers instead of running it."""

import base64
import json
import re
import shutil
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from analysis import report

FIXTURE = Path(__file__).parent / "fixture" / "next"
EVIL = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>"
TASK = "vizwiz_vqa_val"


def add_records(root, run, answer, **more):
    content = json.loads((root / run / f"result.{TASK}.json").read_text())
    kept = np.zeros((2, 1, 6), bool)
    kept[:, :, [0, 2]] = True
    bits = base64.b64encode(zlib.compress(np.packbits(kept).tobytes())).decode()
    proof = {"kept": {"shape": [2, 1, 6], "bits": bits}, "prompt": "one", "kept_text": [1, 1], "kept_vision": [1, 1]}
    record = {"task": TASK, "doc_id": 0, "repeat": 0, "status": "ok", "error": None, "answer": answer, "time": 1.0}
    record |= {"timing": "shared", "seconds": 0.1, "eviction": proof, "schema": 2}
    folder = root / "records" / content["fingerprint"]
    folder.mkdir(parents=True)
    record["eviction"] |= {"retention_achieved": 0.05, "kv_bytes_kept": 1, "kv_bytes_full": 20}
    record |= {"prompt_hash": "0000"}
    lines = [record, record | {"doc_id": 1, "prompt_hash": "0001", "status": "failed", "error": EVIL, "answer": None}]
    text = "".join(json.dumps(line | {"fingerprint": content["fingerprint"]}) + "\n" for line in lines)
    (folder / "records.rank0.jsonl").write_text(text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Results whose answers, question, errors, folder and file names have markup in them."""
    root = tmp_path_factory.mktemp("results") / "<i>bold & <b>"
    for run in ("full", "tgv_kv-0.95", "streaming_llm-0.95"):
        shutil.copytree(FIXTURE / run, root / run)
    path = root / "tgv_kv-0.95" / f"result.{TASK}.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"counts": content["counts"] | {"failed": 1}}))
    add_records(root, "full", "a cat")
    add_records(root, "tgv_kv-0.95", EVIL)
    prompts = root / "records" / "prompts"
    prompts.mkdir()
    block = {"kind": "image", "file": "one.0.jpg", "start": 1, "rows": 2, "columns": 2, "newline": 0, "end": 0}
    tokens = [f"what {EVIL}", None, None, None, None, "?"]
    (prompts / "one.json").write_text(json.dumps({"schema": 1, "tokens": tokens, "blocks": [block]}))
    Image.new("RGB", (32, 32), "white").save(prompts / "one.0.jpg")
    assert report.main([str(root), "--allow-failures"]) == 0
    return root


@pytest.fixture(scope="module")
def browser():
    """Headless Chromium with its console log."""
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip("chromium and chromedriver are not installed (Debian: apt-get install chromium chromium-driver)")
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed (the test extra has it)")
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    options.binary_location = shutil.which("chromium")
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    yield driver
    driver.quit()


@pytest.fixture
def opened(browser, folder):
    browser.get((folder / "report.html").as_uri())
    return browser


def column(browser, table, index):
    script = "return [...arguments[0].tBodies[0].rows].map(row => row.cells[arguments[1]].textContent)"
    return browser.execute_script(script, table, index)


def test_the_console_has_no_error_and_every_image_loads(opened):
    assert opened.get_log("browser") == []
    sizes = opened.execute_script("return [...document.images].map(i => i.complete && i.naturalWidth)")
    assert len(sizes) >= 3
    assert all(sizes)


def test_a_click_sorts_by_number_and_a_second_one_backwards(opened):
    table = opened.find_element("css selector", "#tables table")
    heads = [head.text for head in table.find_elements("css selector", "th")]
    position = heads.index("VizWiz")
    button = table.find_elements("css selector", "th button")[position]
    before = column(opened, table, position)
    button.click()
    numbers = [float(re.match(r"[\d.]+", text)[0]) for text in column(opened, table, position)]
    assert numbers == sorted(numbers)
    button.click()
    backwards = [float(re.match(r"[\d.]+", text)[0]) for text in column(opened, table, position)]
    assert backwards == numbers[::-1]
    assert sorted(before) == sorted(column(opened, table, position))


def test_cells_without_a_score_come_last(opened):
    table = opened.find_element("css selector", "#tables table")
    heads = [head.text for head in table.find_elements("css selector", "th")]
    position = heads.index("TextVQA")
    table.find_elements("css selector", "th button")[position].click()
    assert column(opened, table, position)[-1] == "not run"


def test_markup_is_shown_and_not_run(opened, folder):
    assert opened.title == f"Results of {folder.name}"
    text = opened.find_element("tag name", "body").text
    assert "Results of <i>bold & <b>" in text
    answers = opened.find_element("id", "answers").text
    assert answers.count("document.title='run'</script>") == 2, "question and answer, each as it is"
    assert EVIL in opened.find_element("id", "failures").text
    assert opened.execute_script("return document.querySelectorAll('i, body script').length") == 1


def test_nothing_is_asked_of_the_network(folder):
    page = (folder / "report.html").read_text()
    sources = re.findall(r'(?:src|href)="([^"]*)"', page.split("<script>")[0])
    assert all(source.startswith(("data:", "#")) for source in sources)
    assert "default-src 'none'" in page
    assert "http://" not in re.sub(r"data:[^\"]*", "", page)


def test_a_script_that_is_not_the_page_s_own_would_not_run(opened, folder, tmp_path):
    page = (folder / "report.html").read_text()
    injected = tmp_path / "injected.html"
    injected.write_text(page.replace("</body>", "<script>document.title='run'</script></body>"))
    opened.get(injected.as_uri())
    assert opened.title != "run"
    assert any("Content Security Policy" in entry["message"] for entry in opened.get_log("browser"))


def test_tables_plots_maps_answers_configuration_and_failures_are_there(folder):
    page = (folder / "report.html").read_text()
    for name in ("overview", "tables", "plots", "maps", "answers", "configuration", "failures"):
        assert f'<section id="{name}">' in page
    assert page.count("data:image/svg+xml") == 2
    assert page.count("data:image/png") == 1
