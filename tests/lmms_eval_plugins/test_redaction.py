"""No key or token of the environment reaches what is printed or written."""

import json
import sys
import traceback

import pytest
from loguru import logger

from lmms_eval_plugins import records
from lmms_eval_plugins.models.outcome import failure
from lmms_eval_plugins.redaction import redacted, redacted_output

SECRETS = {
    "HF_TOKEN": "hf-odd-0123456789",
    "HUGGING_FACE_HUB_TOKEN": "hub-token-0123",
    "OPENAI_API_KEY": "sk-0123456789",
    "WANDB_API_KEY": "wandb-0123456789",
    "AWS_SECRET_ACCESS_KEY": "aws-0123456789",
    "CLIENT_SECRET": "client-0123456789",
    "MY_PASSWORD": "hunter2-0123",
}


@pytest.mark.parametrize(("name", "value"), SECRETS.items(), ids=SECRETS)
def test_values_of_variables_that_are_named_as_secrets_are_cut_out(name, value):
    assert redacted(f"asked with {value}, twice {value}", {name: value}) == "asked with ***, twice ***"


def test_passwords_of_addresses_are_cut_out():
    env = {"HTTPS_PROXY": "http://me:open-sesame@proxy:3128"}
    assert redacted("no way through http://me:open-sesame@proxy:3128", env) == "no way through http://me:***@proxy:3128"


def test_words_and_other_variables_stay():
    env = {"OPENAI_API_KEY": "EMPTY", "IMAGE_MAX_TOKEN_NUM": "1024576", "TOKENIZERS_PARALLELISM": "false-for-us"}
    text = "EMPTY 1024576 false-for-us"
    assert redacted(text, env) == text


def test_of_two_secrets_the_longer_one_is_cut_out_whole():
    assert redacted("abcdefgh", {"A_TOKEN": "abcdef", "B_TOKEN": "abcdefgh"}) == "***"


def test_prints_logs_and_tracebacks_are_without_them(monkeypatch, capsys):
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    with redacted_output():
        sink = logger.add(sys.stdout, level="INFO")
        logger.info(f"Evaluation tracker args: {SECRETS}")
        logger.remove(sink)
        print(*SECRETS.values(), file=sys.stderr)
        sys.stdout.writelines(SECRETS.values())
        try:
            raise ValueError(SECRETS["HF_TOKEN"])
        except ValueError:
            traceback.print_exc()
    output = "".join(capsys.readouterr())
    assert not [value for value in SECRETS.values() if value in output]
    assert output.count("***") >= 3 * len(SECRETS)
    assert "Evaluation tracker args" in output


def test_files_and_reasons_of_failures_are_without_them(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_TOKEN", SECRETS["HF_TOKEN"])
    records.write_json(tmp_path / "a.json", {"args": [{"token": SECRETS["HF_TOKEN"]}], "number": 1.5})
    assert json.loads((tmp_path / "a.json").read_text()) == {"args": [{"token": "***"}], "number": 1.5}
    assert failure(ValueError(f"token {SECRETS['HF_TOKEN']} is not known")) == "ValueError: token *** is not known"
    assert failure(ValueError("a line\nand \x1b[31mmore")) == "ValueError: a line and  [31mmore"
