// Cooperative groups over the emulator's barriers and warp operations.
#pragma once
#include <emu/emu.h>

namespace cooperative_groups {
namespace details {
inline dim3 as_dim3(uint3 v) { return dim3(v.x, v.y, v.z); }
inline unsigned volume(dim3 d) { return d.x * d.y * d.z; }
inline unsigned bits_below(unsigned mask, unsigned lane) { return __builtin_popcount(mask & ((1u << lane) - 1)); }
// Lane of the rank-th bit that is set.
inline unsigned lane_of_rank(unsigned mask, unsigned rank) {
    for (unsigned lane = 0; lane < 32; lane++) {
        if (mask >> lane & 1 && rank-- == 0) return lane;
    }
    return 32;   // no such lane: the shuffle reports it
}
}  // namespace details

enum class thread_scope { thread, block, device, system };

class thread_block {
public:
    using arrival_token = int;
    static constexpr void* emu_no_memory = nullptr;
    void sync(EMU_LINE) const { ::__syncthreads(emu_line); }
    static unsigned thread_rank() { return ::emu::current->rank; }
    static unsigned size() { return ::emu::block_threads(); }
    static unsigned num_threads() { return size(); }
    static dim3 group_index() { return details::as_dim3(::emu::current->block->index); }
    static dim3 thread_index() { return details::as_dim3(::emu::current->index); }
    static dim3 group_dim() { return ::emu::block_dim(); }
    static dim3 dim_threads() { return ::emu::block_dim(); }
};
inline thread_block this_thread_block() { return {}; }

class grid_group {
public:
    void sync(EMU_LINE) const { ::emu::grid_barrier(emu_line); }
    bool is_valid() const { return ::emu::is_cooperative(); }
    static unsigned long long num_blocks() {
        const dim3 g = ::emu::grid_dim();
        return 1ull * g.x * g.y * g.z;
    }
    static unsigned long long block_rank() {
        const dim3 g = ::emu::grid_dim();
        const uint3 b = ::emu::current->block->index;
        return b.x + 1ull * g.x * (b.y + 1ull * g.y * b.z);
    }
    static unsigned long long num_threads() { return num_blocks() * ::emu::block_threads(); }
    static unsigned long long size() { return num_threads(); }
    static unsigned long long thread_rank() { return block_rank() * ::emu::block_threads() + ::emu::current->rank; }
    static dim3 group_dim() { return ::emu::grid_dim(); }
    static dim3 dim_blocks() { return ::emu::grid_dim(); }
    static dim3 block_index() { return details::as_dim3(::emu::current->block->index); }
};
inline grid_group this_grid() { return {}; }

class cluster_group {
public:
    struct arrival_token {};
    static void sync(EMU_LINE) {
        ::emu::cluster_arrive(emu_line);
        ::emu::cluster_wait(emu_line);
    }
    static arrival_token barrier_arrive(EMU_LINE) {
        ::emu::cluster_arrive(emu_line);
        return {};
    }
    static void barrier_wait(EMU_LINE) { ::emu::cluster_wait(emu_line); }
    static void barrier_wait(arrival_token&&, EMU_LINE) { ::emu::cluster_wait(emu_line); }
    static unsigned num_blocks() { return details::volume(dim_blocks()); }
    static unsigned block_rank() { return ::emu::current->block->cluster_rank; }
    static unsigned num_threads() { return num_blocks() * ::emu::block_threads(); }
    static unsigned size() { return num_threads(); }
    static unsigned thread_rank() { return block_rank() * ::emu::block_threads() + ::emu::current->rank; }
    static dim3 dim_blocks() { return ::emu::current->block->cluster; }
    static dim3 dim_threads() {
        const dim3 c = dim_blocks(), b = ::emu::block_dim();
        return dim3(c.x * b.x, c.y * b.y, c.z * b.z);
    }
    static dim3 block_index() {
        const unsigned r = block_rank();
        const dim3 c = dim_blocks();
        return dim3(r % c.x, r / c.x % c.y, r / c.x / c.y);
    }
    template <class T>
    static T* map_shared_rank(T* pointer, unsigned rank, EMU_LINE) {
        return static_cast<T*>(::emu::map_to_peer(const_cast<std::remove_const_t<T>*>(pointer), rank, emu_line));
    }
    template <class T>
    static unsigned query_shared_rank(const T* pointer) { return (::emu::shared_window(pointer) >> 24) - 1; }
};
inline cluster_group this_cluster() { return {}; }

// Lanes of one warp, given by their mask.
class lane_group {
public:
    explicit lane_group(unsigned mask) : mask_(mask) {}
    unsigned num_threads() const { return unsigned(__builtin_popcount(mask_)); }
    unsigned size() const { return num_threads(); }
    unsigned thread_rank() const { return details::bits_below(mask_, ::emu::current->lane); }
    void sync(EMU_LINE) const { ::__syncwarp(mask_, emu_line); }
    unsigned emu_mask() const { return mask_; }

    template <class T>
    T shfl(T value, unsigned rank, EMU_LINE) const {
        return ::emu::exchange(mask_, value, int(details::lane_of_rank(mask_, rank % num_threads())), emu_line);
    }
    template <class T>
    T shfl_up(T value, unsigned delta, EMU_LINE) const {
        const unsigned rank = thread_rank(), from = rank < delta ? rank : rank - delta;
        return ::emu::exchange(mask_, value, int(details::lane_of_rank(mask_, from)), emu_line);
    }
    template <class T>
    T shfl_down(T value, unsigned delta, EMU_LINE) const {
        const unsigned rank = thread_rank(), from = rank + delta >= num_threads() ? rank : rank + delta;
        return ::emu::exchange(mask_, value, int(details::lane_of_rank(mask_, from)), emu_line);
    }
    template <class T>
    T shfl_xor(T value, unsigned bits, EMU_LINE) const {
        const unsigned rank = thread_rank(), from = (rank ^ bits) >= num_threads() ? rank : rank ^ bits;
        return ::emu::exchange(mask_, value, int(details::lane_of_rank(mask_, from)), emu_line);
    }
    int any(int p, EMU_LINE) const { return ::__any_sync(mask_, p, emu_line); }
    int all(int p, EMU_LINE) const { return ::__all_sync(mask_, p, emu_line); }
    unsigned ballot(int p, EMU_LINE) const { return by_rank(::__ballot_sync(mask_, p, emu_line)); }
    template <class T>
    unsigned match_any(T value, EMU_LINE) const {
        return by_rank(::__match_any_sync(mask_, value, emu_line));
    }
    template <class T>
    unsigned match_all(T value, int& all_equal, EMU_LINE) const {
        return by_rank(::__match_all_sync(mask_, value, &all_equal, emu_line));
    }

protected:
    unsigned by_rank(unsigned lanes) const {
        unsigned result = 0;
        for (unsigned lane = 0; lane < 32; lane++) {
            if (lanes >> lane & mask_ >> lane & 1) result |= 1u << details::bits_below(mask_, lane);
        }
        return result;
    }
    unsigned mask_;
};

class coalesced_group : public lane_group {
public:
    explicit coalesced_group(unsigned mask, unsigned part = 0, unsigned parts = 1)
        : lane_group(mask), part_(part), parts_(parts) {}
    unsigned meta_group_rank() const { return part_; }
    unsigned meta_group_size() const { return parts_; }

private:
    unsigned part_, parts_;
};
inline coalesced_group coalesced_threads(EMU_LINE) { return coalesced_group(::__activemask(emu_line)); }

namespace details {
inline unsigned tile_mask(unsigned size) {
    const unsigned first = ::emu::current->lane & ~(size - 1);
    const unsigned lanes = size >= 32 ? 0xFFFFFFFFu : ((1u << size) - 1) << first;
    return lanes & ::emu::live_lanes();
}
}  // namespace details

template <unsigned Size, class Parent = void>
class thread_block_tile : public lane_group {
    static_assert(Size <= 32, "unsupported_by_emulator: cooperative groups tiles of more than 32 threads");
    static_assert(Size >= 1 && (Size & (Size - 1)) == 0, "a tile's size is a power of two");

public:
    thread_block_tile() : lane_group(details::tile_mask(Size)) {}
    template <class Other>
    thread_block_tile(const thread_block_tile<Size, Other>&) : thread_block_tile() {}
    static constexpr unsigned size() { return Size; }
    static constexpr unsigned num_threads() { return Size; }
    static unsigned thread_rank() { return ::emu::current->lane & (Size - 1); }
    static unsigned meta_group_rank() { return ::emu::current->rank / Size; }
    static unsigned meta_group_size() { return (::emu::block_threads() + Size - 1) / Size; }
};

// Any group by value: a block, a grid or lanes of a warp.
class thread_group {
public:
    thread_group(const thread_block&) : kind_(Kind::Block) {}
    thread_group(const grid_group&) : kind_(Kind::Grid) {}
    thread_group(const lane_group& lanes) : kind_(Kind::Lanes), mask_(lanes.emu_mask()) {}
    unsigned long long size() const {
        if (kind_ == Kind::Grid) return grid_group::size();
        return kind_ == Kind::Block ? thread_block::size() : lane_group(mask_).size();
    }
    unsigned long long num_threads() const { return size(); }
    unsigned long long thread_rank() const {
        if (kind_ == Kind::Grid) return grid_group::thread_rank();
        return kind_ == Kind::Block ? thread_block::thread_rank() : lane_group(mask_).thread_rank();
    }
    void sync(EMU_LINE) const {
        if (kind_ == Kind::Grid) ::emu::grid_barrier(emu_line);
        else if (kind_ == Kind::Block) ::__syncthreads(emu_line);
        else ::__syncwarp(mask_, emu_line);
    }

private:
    enum class Kind { Block, Grid, Lanes };
    Kind kind_;
    unsigned mask_ = 0;
};

template <unsigned Size, class Parent>
inline thread_block_tile<Size, Parent> tiled_partition(const Parent&) {
    return {};
}
inline coalesced_group tiled_partition(const thread_block&, unsigned size) {
    return coalesced_group(details::tile_mask(size), ::emu::current->rank / size,
                           (::emu::block_threads() + size - 1) / size);
}
inline coalesced_group tiled_partition(const coalesced_group& group, unsigned size) {
    unsigned mask = 0;
    const unsigned part = group.thread_rank() / size;
    for (unsigned rank = part * size; rank < (part + 1) * size && rank < group.size(); rank++) {
        mask |= 1u << details::lane_of_rank(group.emu_mask(), rank);
    }
    return coalesced_group(mask, part, (group.size() + size - 1) / size);
}
template <class Group, class Label>
inline coalesced_group labeled_partition(const Group& group, Label label, EMU_LINE) {
    return coalesced_group(::__match_any_sync(group.emu_mask(), label, emu_line));
}
template <class Group>
inline coalesced_group binary_partition(const Group& group, bool predicate, EMU_LINE) {
    return labeled_partition(group, int(predicate), emu_line);
}
template <class Group>
inline void sync(const Group& group, EMU_LINE) {
    group.sync(emu_line);
}
template <class Group>
inline unsigned thread_rank(const Group& group) {
    return unsigned(group.thread_rank());
}
template <class Group>
inline unsigned group_size(const Group& group) {
    return unsigned(group.size());
}
template <class Group, class F>
inline void invoke_one(const Group& group, F&& function) {
    if (group.thread_rank() == 0) function();
}
}  // namespace cooperative_groups
