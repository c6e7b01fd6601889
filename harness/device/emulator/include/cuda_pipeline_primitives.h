// Shadows the header of this name.
#pragma once
#include <cuda_pipeline.h>
