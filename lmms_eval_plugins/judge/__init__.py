"""Judging of open answers, apart from generating them.

`scoring` is what a task names; `exact` the offline rule; `python -m lmms_eval_plugins.judge FOLDER` asks a judge model
for the answers of a results folder that have no verdict yet, and writes the scores anew.
"""
