// cg::memcpy_async and the waits for it.
#pragma once
#include <cooperative_groups.h>
#include <cuda/barrier>

namespace cooperative_groups {
template <class Group, class To, class From, class Size>
inline void memcpy_async(const Group& group, To* to, const From* from, Size bytes, EMU_LINE) {
    ::cuda::emu_detail::copy_by_group(group, to, from, size_t(bytes), emu_line);
    ::emu::async_commit();
}
template <class Group, class T, class ToSize, class FromSize>
inline void memcpy_async(const Group& group, T* to, ToSize to_count, const T* from, FromSize from_count, EMU_LINE) {
    const size_t count = size_t(to_count) < size_t(from_count) ? size_t(to_count) : size_t(from_count);
    ::cuda::emu_detail::copy_by_group(group, to, from, count * sizeof(T), emu_line);
    ::emu::async_commit();
}
template <class Group>
inline void wait(const Group& group, EMU_LINE) {
    ::emu::async_wait_all();
    group.sync(emu_line);
}
template <unsigned Left, class Group>
inline void wait_prior(const Group& group, EMU_LINE) {
    ::emu::async_wait(Left);
    group.sync(emu_line);
}
}  // namespace cooperative_groups
