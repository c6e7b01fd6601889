// cg::reduce and its operators.
#pragma once
#include <cooperative_groups.h>

namespace cooperative_groups {
#define EMU_OPERATOR(name, result)                           \
    template <class T>                                       \
    struct name {                                            \
        T operator()(const T& a, const T& b) const {         \
            return result;                                   \
        }                                                    \
    };
EMU_OPERATOR(plus, a + b)
EMU_OPERATOR(less, b < a ? b : a)
EMU_OPERATOR(greater, a < b ? b : a)
EMU_OPERATOR(bit_and, a & b)
EMU_OPERATOR(bit_or, a | b)
EMU_OPERATOR(bit_xor, a ^ b)
#undef EMU_OPERATOR

// Every member gets the result; halving as on a GPU, so that sums are rounded in a similar order.
template <class Group, class T, class F>
inline T reduce(const Group& group, T value, F&& combine, EMU_LINE) {
    const unsigned size = unsigned(group.size()), rank = unsigned(group.thread_rank());
    unsigned width = 1;
    while (width < size) width *= 2;
    for (unsigned offset = width / 2; offset; offset /= 2) {
        const T other = group.shfl_down(value, offset, emu_line);
        if (rank + offset < size) value = combine(value, other);
    }
    return group.shfl(value, 0, emu_line);
}
template <class Group, class T, class F>
inline void reduce_update_async(const Group& group, T& target, T value, F&& combine, EMU_LINE) {
    const T sum = reduce(group, value, combine, emu_line);
    if (group.thread_rank() == 0) {
        ::emu::update(&target, [&](T old) { return combine(old, sum); }, emu_line);
    }
}
}  // namespace cooperative_groups
