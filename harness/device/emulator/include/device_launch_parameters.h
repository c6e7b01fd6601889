// threadIdx and its kin are the emulator's; the toolkit's header declares them once more.
#pragma once
#include <emu/emu.h>
