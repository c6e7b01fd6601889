"""What `load_inline` becomes here: a cache keyed by content, one toolchain per device, short errors."""
