"""One file per published method; each reads like its paper's section."""
