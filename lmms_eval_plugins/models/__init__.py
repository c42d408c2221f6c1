"""The model wrappers, one module per lmms-eval model name, over one shared generation loop (`base`)."""
