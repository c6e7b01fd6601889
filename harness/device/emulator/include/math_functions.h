// What the toolkit's header of this name declares for nvcc alone.
#pragma once
#include <emu/emu.h>
