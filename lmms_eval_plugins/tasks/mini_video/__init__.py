"""Five tasks on one set of held-out videos of `tiny_vlm.video`: Video-TT's four ways to ask, and multiple choice."""
