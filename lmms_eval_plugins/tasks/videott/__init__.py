"""Video-TT under lmms-eval's names: its prompts and data, but no judge while answers are generated.

Scores come from `lmms_eval_plugins.judge`, and answers may be as long as `MAX_GENERATED_TOKENS`.
"""
