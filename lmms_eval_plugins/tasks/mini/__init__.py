"""Four small tasks on held-out samples of `tiny_vlm.data`: nothing is downloaded, no Java is needed to score them."""
