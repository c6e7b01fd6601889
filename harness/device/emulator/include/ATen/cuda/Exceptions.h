// Shadows torch's header of this name, which needs CUDA libraries.
#pragma once
#include <emu/torch_cuda.h>
