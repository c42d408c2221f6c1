"""Caption metrics in one process: Java starts once for the same captions, scores stay what they were."""

import json
import os
import subprocess
import sys

import pytest

from lmms_eval_plugins import captions
from tests.scripts import fake

from . import toy

JAVA = """echo start >> "$LOG"
case "$*" in *PTBTokenizer*)
    exec tr A-Z a-z < "${!#}" ;;
esac
while IFS= read -r line; do
    case $line in
        *crash*) exit 1 ;;
        SCORE*) echo "${#line}" ;;
        EVAL*)
            rest=${line//|||/}
            for ((i = 0; i <= (${#line} - ${#rest}) / 3; i++)); do echo "${#line}.5"; done ;;
    esac
done
"""
"""Tokenises by lower case, and scores by lengths; METEOR ends where it reads `crash`."""
SCORE = """
import json, os
from pathlib import Path
from pycocoevalcap.eval import Bleu, Cider, Meteor, PTBTokenizer
from lmms_eval_plugins.captions import start_java_once

def score(answers):
    "All metrics of a configuration as lmms-eval's tasks compute them, and how often Java was started for it."
    log = Path(os.environ["LOG"])
    log.write_text("")
    scores = []
    for metric in range(3):
        scorers = [Bleu(4), Meteor(), Cider()]
        references = {0: [{"caption": "A dog"}, {"caption": "THE dog runs"}], 7: [{"caption": "A red Bus stops"}]}
        found = {image: [{"caption": caption}] for image, caption in answers.items()}
        tokenizer = PTBTokenizer()
        references, found = tokenizer.tokenize(references), tokenizer.tokenize(found)
        scores.append(scorers[metric].compute_score(references, found))
        references[0].append("changed")
    return repr(scores), len(log.read_text().splitlines())
"""


@pytest.fixture
def in_a_process(tmp_path):
    """Runs code in a fresh interpreter; returns what it prints, read as JSON."""
    fake(tmp_path / "bin" / "java", JAVA)
    env = os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "LOG": str(tmp_path / "log")}

    def run(code):
        done = subprocess.run([sys.executable, "-c", SCORE + code], env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


def test_java_starts_once_for_the_same_captions_and_scores_are_the_same(in_a_process):
    configurations = [{0: "a DOG walks", 7: "A bus"}, {0: "A dog", 7: ""}]
    code = (
        f"answers = {configurations}\nstock = [score(one) for one in answers]\nstart_java_once()\nstart_java_once()\n"
    )
    stock, shared = in_a_process(code + "print(json.dumps([stock, [score(one) for one in answers]]))")
    assert [scores for scores, _ in shared] == [scores for scores, _ in stock]
    assert [starts for _, starts in stock] == [9, 9]  # for each metric references, answers, and METEOR
    assert [starts for _, starts in shared] == [3, 1]
    assert stock[0][0] != stock[1][0]


def test_after_a_crash_of_java_the_next_score_has_a_new_one(in_a_process):
    code = """
start_java_once()
first = score({0: "a dog", 7: "a bus"})
try:
    score({0: "crash", 7: "a bus"})
    raised = False
except (ValueError, OSError):
    raised = True
print(json.dumps([raised, first[0] == score({0: "a dog", 7: "a bus"})[0]]))
"""
    assert in_a_process(code) == [True, True]


def test_every_run_has_it(checkpoint, monkeypatch):
    calls = []
    monkeypatch.setattr(captions, "start_java_once", lambda: calls.append(1))
    toy.wrapper(checkpoint("llava"))
    assert calls == [1]
