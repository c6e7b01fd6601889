// All of the emulator's CUB stands in one header.
#pragma once
#include <cub/cub.cuh>
