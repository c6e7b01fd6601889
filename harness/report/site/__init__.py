"""A static site of the boards: pages that need no network, and no JavaScript to be read.

`gather` reads the store, a module a kind of page makes what its template shows, and `build` writes the files. Plots are
SVG made here (`charts/`), so that pages show them without scripts. Every text of a template is escaped; names of files
are digests and plain words (`names`).
"""
