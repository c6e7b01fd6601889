// cuRAND's own header, whose code for hosts gives a GPU's numbers. It declares threadIdx for MTGP32, which is refused.
#pragma once
#pragma push_macro("threadIdx")
#undef threadIdx
#include_next <curand_kernel.h>
#pragma pop_macro("threadIdx")
