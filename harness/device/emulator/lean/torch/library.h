// torch/types.h includes this and uses nothing of it. A source that includes it gets torch's own.
#ifndef EMU_LEAN
#include_next <torch/library.h>
#endif
