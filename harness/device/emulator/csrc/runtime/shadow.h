// What check mode remembers of memory accesses. All of it runs with one worker.
#pragma once
#include "state.h"

namespace emu {
uint32_t new_epoch();
void shadow_begin_block(BlockState* block);
void shadow_end_block(BlockState* block);
void count_barrier(BlockState* block);
void count_atomic(BlockState* block);
void begin_counts(Launch* launch);
void end_counts(Launch* launch);
void shadow_begin_launch(Launch* launch);
}  // namespace emu
