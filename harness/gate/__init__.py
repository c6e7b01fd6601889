"""What a merge has to hold: rules over evaluations, each a function, and what they are asked for in kernelgate.toml."""
