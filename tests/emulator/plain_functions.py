"""The same functions bound without pybind11 and, because something beside declarations stands there, with it."""

from torch.utils.cpp_extension import load_inline

DECLARED = """
#include <torch/extension.h>
// Of each kind one.
torch::Tensor numbers(const torch::Tensor& x, double by, float and_by, int whole, int64_t long_one, bool sign = false);
std::vector<torch::Tensor> halves(std::vector<torch::Tensor> many, std::optional<at::Tensor> more);
std::tuple<torch::Tensor, torch::Tensor> both(at::Tensor x, const c10::optional<at::Tensor>& y);
void fill(torch::Tensor& x, float value);
int64_t count(torch::Tensor x);
bool is_empty(const torch::Tensor &x);
torch::Tensor refuses(torch::Tensor x);
torch::Tensor too_many_threads(torch::Tensor x);
"""
DEFINED = r"""
#include <torch/extension.h>
__global__ void add(float* x, float value, int n) { if (threadIdx.x < n) x[threadIdx.x] += value; }
void added(const torch::Tensor& x, float value) { add<<<1, 32>>>(x.data_ptr<float>(), value, int(x.numel())); }
torch::Tensor numbers(const torch::Tensor& x, double by, float and_by, int whole, int64_t long_one, bool sign) {
    auto y = x.clone();
    added(y, float(by) + and_by + float(whole) + float(long_one));
    return sign ? -y : y;
}
std::vector<torch::Tensor> halves(std::vector<torch::Tensor> many, std::optional<at::Tensor> more) {
    if (more) many.push_back(*more);
    return many;
}
std::tuple<torch::Tensor, torch::Tensor> both(at::Tensor x, const c10::optional<at::Tensor>& y) {
    return {x, y.value_or(x)};
}
void fill(torch::Tensor& x, float value) { x.zero_(); added(x, value); }
int64_t count(torch::Tensor x) { return x.numel(); }
bool is_empty(const torch::Tensor& x) { return x.numel() == 0; }
torch::Tensor refuses(torch::Tensor x) { TORCH_CHECK_VALUE(false, "x is not to its liking"); }
torch::Tensor too_many_threads(torch::Tensor x) { add<<<1, 4096>>>(x.data_ptr<float>(), 1.0f, 1); return x; }
"""
NAMES = ["numbers", "halves", "both", "fill", "count", "is_empty", "refuses", "too_many_threads"]
plain = load_inline(name="plain", cpp_sources=DECLARED, cuda_sources=DEFINED, functions=NAMES)
usual = load_inline(name="usual", cpp_sources=DECLARED + "struct Unused {};", cuda_sources=DEFINED, functions=NAMES)


def run(torch):
    def calls(extension):
        x = torch.arange(4.0, device="cuda")
        filled = torch.ones(3, device="cuda")
        return {
            "numbers": lambda: extension.numbers(x, 1, 2.5, True, 4, False),
            "a sign": lambda: extension.numbers(x, 1.5, 2, 3, 4, True),
            "two tensors": lambda: extension.halves([x, x + 1], None),
            "three tensors": lambda: extension.halves((x, x), x + 2),
            "a pair": lambda: extension.both(x, None),
            "another pair": lambda: extension.both(x, x * 2),
            "nothing": lambda: (extension.fill(filled, 2), filled),
            "how many": lambda: extension.count(x),
            "whether": lambda: extension.is_empty(x),
            "what it throws": lambda: extension.refuses(x),
            "a launch that fails": lambda: extension.too_many_threads(x),
            "one too few": lambda: extension.count(),
            "one too many": lambda: extension.count(x, x),
            "by name": lambda: extension.count(x=x),
            "no tensor": lambda: extension.count(3),
            "None for a tensor": lambda: extension.both(None, x),
            "a real for a whole number": lambda: extension.numbers(x, 1, 2, 3.5, 4, False),
            "too large a whole number": lambda: extension.numbers(x, 1, 2, 2**40, 4, False),
            "a word for a number": lambda: extension.numbers(x, "1", 2, 3, 4, False),
            "a word for a bool": lambda: extension.numbers(x, 1, 2, 3, 4, "no"),
            "a tensor for a list": lambda: extension.halves(x, None),
        }

    def outcome(call):
        try:
            return repr(call())
        except Exception as error:
            return type(error).__name__

    one, other = ({name: outcome(call) for name, call in calls(e).items()} for e in (plain, usual))
    return {"without pybind11": one, "with it": other, "message": _message(lambda: plain.count(3))}


def _message(call):
    try:
        call()
    except TypeError as error:
        return str(error)
