"""The model wrappers, one module per lmms-eval model name, over one shared generation loop (`base`)."""

WRAPPER_VERSION = 2
"""Part of every fingerprint. To be raised when a wrapper gives its model something else for the same request, or reads
an answer otherwise: the prompt's form, sampling and sizes of images and videos, decoding arguments, where an answer
ends. Stored answers are then computed again. Not for messages or speed; the code of `kv_caches` is in the fingerprint
itself, a task's text and pictures are in the prompt's hash, and the form of a record is `store.SCHEMA`.
"""
