// cg::inclusive_scan and cg::exclusive_scan.
#pragma once
#include <cooperative_groups/reduce.h>

namespace cooperative_groups {
template <class Group, class T, class F>
inline T inclusive_scan(const Group& group, T value, F&& combine, EMU_LINE) {
    const unsigned size = unsigned(group.size()), rank = unsigned(group.thread_rank());
    for (unsigned offset = 1; offset < size; offset *= 2) {
        const T other = group.shfl_up(value, offset, emu_line);
        if (rank >= offset) value = combine(other, value);
    }
    return value;
}
template <class Group, class T>
inline T inclusive_scan(const Group& group, T value, EMU_LINE) {
    return inclusive_scan(group, value, plus<T>(), emu_line);
}
template <class Group, class T, class F>
inline T exclusive_scan(const Group& group, T value, F&& combine, EMU_LINE) {
    const T sum = inclusive_scan(group, value, combine, emu_line);
    const T before = group.shfl_up(sum, 1, emu_line);
    return group.thread_rank() == 0 ? T() : before;
}
template <class Group, class T>
inline T exclusive_scan(const Group& group, T value, EMU_LINE) {
    return exclusive_scan(group, value, plus<T>(), emu_line);
}
}  // namespace cooperative_groups
