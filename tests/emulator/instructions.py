"""Single instructions of PTX, each with what it gives: types, saturation, NaN, registers in ranges, votes."""

from torch.utils.cpp_extension import load_inline

# Instruction, what it gives to the variable that `=` names, what it reads, and what y then is.
CHECKS = [
    ("cvt.sat.f32.f32 %0, %1;", "f", '"f"(x[0])', "f", 1),
    ("{ .reg .pred p, q; setp.gt.f32 p, %1, 0f00000000; not.pred q, p; selp.f32 %0, 1.0, 2.0, q; }",
     "f", '"f"(x[0])', "f", 2),
    ("popc.b64 %0, %1;", "r", '"l"(0x8000000000000003ull)', "r", 3),
    ("clz.b64 %0, %1;", "r", '"l"(0x0800000000000003ull)', "r", 4),
    ("brev.b64 %0, %1;", "l", '"l"(0x8000000000000003ull)', "l == 0xC000000000000001ull", 1),
    ("{ .reg .pred p; setp.ne.f32 p, %1, %1; selp.u32 %0, 1, 0, p; }", "r", '"f"(x[2])', "r", 0),
    ("{ .reg .pred p; setp.neu.f32 p, %1, %1; selp.u32 %0, 1, 0, p; }", "r", '"f"(x[2])', "r", 1),
    ("{ .reg .pred p; setp.ltu.f32 p, %1, %2; selp.u32 %0, 1, 0, p; }", "r", '"f"(x[0]), "f"(x[1])', "r", 0),
    ("{ .reg .pred p; setp.nan.f32 p, %1, %2; selp.u32 %0, 1, 0, p; }", "r", '"f"(x[0]), "f"(x[2])', "r", 1),
    ("{ .reg .pred p, q; setp.gt.f32 p, %1, 0.0; setp.lt.and.f32 p|q, %1, 2.0, !p; selp.u32 %0, 1, 2, q; }",
     "r", '"f"(x[0])', "r", 2),
    ("{ .reg .pred p, q; setp.gt.f32 p, %1, 0.0; setp.lt.or.f32 q, %1, 2.0, p; selp.u32 %0, 1, 2, q; }",
     "r", '"f"(x[0])', "r", 1),
    ("ex2.approx.f16x2 %0, %1;", "r", '"r"(0x3c004000u)', "r == 0x40004400u", 1),
    ("tanh.approx.f16x2 %0, %1;", "r", '"r"(0u)', "r", 0),
    ("add.f16x2 %0, %1, %2;", "r", '"r"(0x3c003c00u), "r"(0x3c004000u)', "r == 0x40004200u", 1),
    ("sub.f16x2 %0, %1, %2;", "r", '"r"(0x40004000u), "r"(0x3c003c00u)', "r == 0x3c003c00u", 1),
    ("mul.bf16x2 %0, %1, %2;", "r", '"r"(0x40004000u), "r"(0x40003f80u)', "r == 0x40804000u", 1),
    ("fma.rn.bf16x2 %0, %1, %1, %1;", "r", '"r"(0x40003f80u)', "r == 0x40c04000u", 1),
    ("fma.rn.relu.f16x2 %0, %1, %2, %1;", "r", '"r"(0x40003c00u), "r"(0xc0003c00u)', "r == 0x00004000u", 1),
    ("max.f16x2 %0, %1, %2;", "r", '"r"(0x3c004000u), "r"(0x40003c00u)', "r == 0x40004000u", 1),
    ("min.bf16x2 %0, %1, %2;", "r", '"r"(0x3f804000u), "r"(0x40003f80u)', "r == 0x3f803f80u", 1),
    ("neg.f16x2 %0, %1;", "r", '"r"(0x3c004000u)', "r == 0xbc00c000u", 1),
    ("abs.bf16x2 %0, %1;", "r", '"r"(0xc0003f80u)', "r == 0x40003f80u", 1),
    ("cvt.rn.f16.f32 %0, %1;", "h", '"f"(x[0])', "h == 0x4100", 1),
    ("cvt.rn.bf16.f32 %0, %1;", "h", '"f"(x[0])', "h == 0x4020", 1),
    ("cvt.f32.f16 %0, %1;", "f", '"h"((unsigned short)0x4100)', "f", 2.5),
    ("cvt.rn.relu.f16x2.f32 %0, %1, %2;", "r", '"f"(-x[0]), "f"(x[0])', "r == 0x00004100u", 1),
    ("cvt.rna.tf32.f32 %0, %1;", "r", '"f"(1.0009765625f)', "r == 0x3f802000u", 1),
    ("cvt.sat.s8.s32 %0, %1;", "r", '"r"(300)', "(int)r", 127),
    ("cvt.s8.s32 %0, %1;", "r", '"r"(200)', "(int)r", -56),
    ("cvt.rni.s32.f32 %0, %1;", "r", '"f"(x[0])', "r", 2),
    ("add.sat.f32 %0, %1, %1;", "f", '"f"(x[0])', "f", 1),
    ("max.f32 %0, %1, %2;", "f", '"f"(x[2]), "f"(x[0])', "f", 2.5),
    ("max.NaN.f32 %0, %1, %2;", "f", '"f"(x[2]), "f"(x[0])', "f != f", 1),
    ("div.full.f32 %0, %1, %2;", "f", '"f"(x[0]), "f"(x[1])', "f", 5),
    ("rsqrt.approx.f32 %0, %1;", "f", '"f"(0.25f)', "f", 2),
    ("mul.hi.u32 %0, %1, %2;", "r", '"r"(0x80000000u), "r"(6)', "r", 3),
    ("mul.hi.s32 %0, %1, %2;", "r", '"r"(-1), "r"(6)', "(int)r", -1),
    ("mul.wide.s32 %0, %1, %2;", "l", '"r"(-3), "r"(5)', "(long long)l", -15),
    ("mad.wide.u32 %0, %1, %2, %3;", "l", '"r"(3), "r"(5), "l"(7ull)', "l", 22),
    ("mad.lo.s32 %0, %1, %2, %3;", "r", '"r"(3), "r"(5), "r"(-20)', "(int)r", -5),
    ("bfe.u32 %0, %1, 4, 8;", "r", '"r"(0x12345678)', "r", 0x67),
    ("bfe.s32 %0, %1, 4, 4;", "r", '"r"(0x000000f0)', "(int)r", -1),
    ("bfi.b32 %0, %1, %2, 8, 4;", "r", '"r"(0x5), "r"(0xffff)', "r", 0xF5FF),
    ("shf.l.wrap.b32 %0, %1, %2, 8;", "r", '"r"(0x12000000), "r"(0x34)', "r", 0x3412),
    ("{ .reg .b32 r<3>; mov.b32 r0, %1; add.u32 r2, r0, 1; mov.b32 %0, r2; }", "r", '"r"(4)', "r", 5),
    ("{ .reg .f32 %%f<2>; mov.f32 %%f1, %1; mov.f32 %0, %%f1; }", "f", '"f"(x[0])', "f", 2.5),
    ("{ .reg .pred p; setp.ne.u32 p, %1, 0; vote.sync.ballot.b32 %0, p, 0xffffffff; }",
     "r", '"r"(threadIdx.x % 4)', "r == 0xeeeeeeeeu", 1),
    ("{ .reg .pred p, q; setp.ne.u32 p, %1, 0; vote.sync.all.pred q, !p, 0xffffffff; selp.u32 %0, 1, 2, q; }",
     "r", '"r"(threadIdx.x)', "r", 2),
    ("activemask.b32 %0;", "r", '"r"(0)', "r == 0xffffffffu", 1),
    ("redux.sync.add.s32 %0, %1, 0xffffffff;", "r", '"r"(threadIdx.x)', "r", 496),
    ("match.any.sync.b32 %0, %1, 0xffffffff;", "r", '"r"(threadIdx.x / 4)', "r == 0xfu << threadIdx.x / 4 * 4", 1),
    ("bar.warp.sync 0xffffffff; mov.u32 %0, %%nwarpid;", "r", '"r"(0)', "r", 1),
    ("red.global.add.v2.f32 [%1], {%2, %2}; mov.f32 %0, %2;", "f", '"l"(sums), "f"(x[1])', "f", 0.5),
]  # fmt: skip

LINES = "\n".join(
    f'    asm volatile("{text}" : "={letter}"({letter}) : {read}); y[{32 * k} + threadIdx.x] = {value};'
    for k, (text, letter, read, value, _) in enumerate(CHECKS)
)
CUDA = (
    r"""
#include <torch/extension.h>
template <class T>
__device__ T kept(T value);
template <> __device__ float kept(float v) { asm volatile("" : "+f"(v) :: "memory"); return v; }
template <> __device__ double kept(double v) { asm volatile("// opaque" : "+d"(v) : "d"(v * 2), "f"(1.f)); return v; }
template <> __device__ short kept(short v) { asm volatile("" : "+h"(v)); return v; }
template <> __device__ const float* kept(const float* v) { asm("/* */" : "=l"(v) : "0"(v), "r"(3)); return v; }
__global__ void barriers(const float* x, float* y) {
    asm volatile("// begin");
    y[threadIdx.x] = kept(*kept(x)) + kept(short(threadIdx.x)) + kept(0.5);
}
__global__ void all_checks(const float* x, float* y, float* sums) {
    float f; unsigned r; unsigned long long l; unsigned short h;
"""
    + LINES
    + r"""
}
void run_all(torch::Tensor x, torch::Tensor y, torch::Tensor sums) {
    all_checks<<<1, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), sums.data_ptr<float>());
    barriers<<<1, 32>>>(x.data_ptr<float>(), sums.data_ptr<float>() + 2);
}
"""
)
extension = load_inline(
    name="instructions",
    cpp_sources="void run_all(torch::Tensor x, torch::Tensor y, torch::Tensor sums);",
    cuda_sources=CUDA,
    functions=["run_all"],
)


def run(torch):
    """For each check what all lanes got, what `red` of two floats summed up, and what went past empty statements."""
    x = torch.tensor([2.5, 0.5, float("nan")]).cuda()
    y = torch.zeros(len(CHECKS), 32, device="cuda")
    sums = torch.zeros(34, device="cuda")
    extension.run_all(x, y, sums)
    return {"checks": y.cpu().tolist(), "sums": sums.cpu().tolist()}
