// CUB's block and warp primitives over real shared memory, so that a missing barrier around TempStorage shows.
// The originals are written in PTX; these have their interfaces and results.
#pragma once
#include <emu/emu.h>

#include <type_traits>

namespace cub {
// ---- operators
struct Sum {
    template <class T>
    T operator()(const T& a, const T& b) const { return a + b; }
};
struct Max {
    template <class T>
    T operator()(const T& a, const T& b) const { return a > b ? a : b; }
};
struct Min {
    template <class T>
    T operator()(const T& a, const T& b) const { return a < b ? a : b; }
};
struct Equality {
    template <class T>
    bool operator()(const T& a, const T& b) const { return a == b; }
};
template <class Key, class Value>
struct KeyValuePair {
    Key key;
    Value value;
};
struct ArgMax {
    template <class K, class V>
    KeyValuePair<K, V> operator()(const KeyValuePair<K, V>& a, const KeyValuePair<K, V>& b) const {
        return b.value > a.value || (a.value == b.value && b.key < a.key) ? b : a;
    }
};
struct ArgMin {
    template <class K, class V>
    KeyValuePair<K, V> operator()(const KeyValuePair<K, V>& a, const KeyValuePair<K, V>& b) const {
        return b.value < a.value || (a.value == b.value && b.key < a.key) ? b : a;
    }
};

enum BlockReduceAlgorithm { BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY, BLOCK_REDUCE_RAKING, BLOCK_REDUCE_WARP_REDUCTIONS };
enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };
enum BlockLoadAlgorithm {
    BLOCK_LOAD_DIRECT, BLOCK_LOAD_STRIPED, BLOCK_LOAD_VECTORIZE, BLOCK_LOAD_TRANSPOSE, BLOCK_LOAD_WARP_TRANSPOSE,
    BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED
};
enum BlockStoreAlgorithm {
    BLOCK_STORE_DIRECT, BLOCK_STORE_STRIPED, BLOCK_STORE_VECTORIZE, BLOCK_STORE_TRANSPOSE,
    BLOCK_STORE_WARP_TRANSPOSE, BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED
};

inline unsigned LaneId() { return ::emu::current->lane; }
inline unsigned WarpId() { return ::emu::current->warp; }

namespace emu_detail {
// Results that CUB leaves undefined are NaNs here, so that their use shows.
template <class T>
inline T undefined() {
    T result;
    std::memset(static_cast<void*>(&result), 0xFF, sizeof result);
    return result;
}
template <int Threads>
inline void expect_block(::emu::Line line) {
    const unsigned have = ::emu::block_threads();
    if (have == unsigned(Threads)) return;
    ::emu::fail("bad_launch", line, "A CUB primitive for blocks of %d threads runs in a block of %u.", Threads, have);
}
inline unsigned logical_mask(int width) {
    const unsigned lanes = width == 32 ? 0xFFFFFFFFu : ((1u << width) - 1) << (LaneId() & ~unsigned(width - 1));
    return lanes & ::emu::live_lanes();
}
template <class T, class F>
inline T warp_reduce(T value, F combine, int width, int valid, ::emu::Line line) {
    const unsigned mask = logical_mask(width), lane = LaneId() & unsigned(width - 1);
    const int present = __builtin_popcount(mask);
    if (valid > present) valid = present;
    for (int offset = 1; offset < width; offset *= 2) {
        const bool inside = int(lane) + offset < present;
        const T other = ::emu::exchange(mask, value, int(LaneId()) + (inside ? offset : 0), line);
        if (int(lane) + offset < valid) value = combine(value, other);
    }
    return value;
}
template <class T, class F>
inline T warp_scan(T value, F combine, int width, ::emu::Line line) {
    const unsigned mask = logical_mask(width), lane = LaneId() & unsigned(width - 1);
    for (unsigned offset = 1; offset < unsigned(width); offset *= 2) {
        const T other = ::emu::exchange(mask, value, int(LaneId() - (lane >= offset ? offset : 0)), line);
        if (lane >= offset) value = combine(other, value);
    }
    return value;
}
template <class T>
inline T from_logical_lane(T value, int source, int width, ::emu::Line line) {
    const int first = int(LaneId() & ~unsigned(width - 1));
    return ::emu::exchange(logical_mask(width), value, first + source, line);
}
}  // namespace emu_detail

template <class T, int Width = 32>
class WarpReduce {
public:
    struct TempStorage {};
    explicit WarpReduce(TempStorage&) {}
    template <class F>
    T Reduce(T value, F combine, int valid, EMU_LINE) {
        return emu_detail::warp_reduce(value, combine, Width, valid, emu_line);
    }
    template <class F>
    T Reduce(T value, F combine, EMU_LINE) { return Reduce(value, combine, Width, emu_line); }
    T Sum(T value, EMU_LINE) { return Reduce(value, cub::Sum(), Width, emu_line); }
    T Max(T value, EMU_LINE) { return Reduce(value, cub::Max(), Width, emu_line); }
    T Min(T value, EMU_LINE) { return Reduce(value, cub::Min(), Width, emu_line); }
    T Sum(T value, int valid, EMU_LINE) { return Reduce(value, cub::Sum(), valid, emu_line); }
    T Max(T value, int valid, EMU_LINE) { return Reduce(value, cub::Max(), valid, emu_line); }
    T Min(T value, int valid, EMU_LINE) { return Reduce(value, cub::Min(), valid, emu_line); }
};

template <class T, int Width = 32>
class WarpScan {
public:
    struct TempStorage {};
    explicit WarpScan(TempStorage&) {}
    template <class F>
    void InclusiveScan(T value, T& result, F combine, EMU_LINE) {
        result = emu_detail::warp_scan(value, combine, Width, emu_line);
    }
    template <class F>
    void InclusiveScan(T value, T& result, F combine, T& total, EMU_LINE) {
        result = emu_detail::warp_scan(value, combine, Width, emu_line);
        total = emu_detail::from_logical_lane(result, Width - 1, Width, emu_line);
    }
    template <class F>
    void ExclusiveScan(T value, T& result, T initial, F combine, EMU_LINE) {
        const T sum = emu_detail::warp_scan(value, combine, Width, emu_line);
        const int lane = int(LaneId()) & (Width - 1);
        const T before = emu_detail::from_logical_lane(sum, lane ? lane - 1 : 0, Width, emu_line);
        result = lane ? combine(initial, before) : initial;
    }
    // The total is of the values alone, without the initial one.
    template <class F>
    void ExclusiveScan(T value, T& result, T initial, F combine, T& total, EMU_LINE) {
        ExclusiveScan(value, result, initial, combine, emu_line);
        InclusiveScan(value, value, combine, total, emu_line);
    }
    void InclusiveSum(T value, T& result, EMU_LINE) { InclusiveScan(value, result, cub::Sum(), emu_line); }
    void InclusiveSum(T value, T& result, T& total, EMU_LINE) {
        InclusiveScan(value, result, cub::Sum(), total, emu_line);
    }
    void ExclusiveSum(T value, T& result, EMU_LINE) { ExclusiveScan(value, result, T(0), cub::Sum(), emu_line); }
    void ExclusiveSum(T value, T& result, T& total, EMU_LINE) {
        ExclusiveScan(value, result, T(0), cub::Sum(), total, emu_line);
    }
    T Broadcast(T value, unsigned lane, EMU_LINE) {
        return emu_detail::from_logical_lane(value, int(lane), Width, emu_line);
    }
};

template <class T, int X, BlockReduceAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS, int Y = 1, int Z = 1, int = 0>
class BlockReduce {
    static constexpr int kThreads = X * Y * Z, kWarps = (kThreads + 31) / 32;

public:
    struct TempStorage {
        T warps[kWarps];
    };
    explicit BlockReduce(TempStorage& storage) : storage_(storage) {}

    // Thread 0 has the result; the storage may be used again after a barrier.
    template <class F>
    T Reduce(T value, F combine, int valid, EMU_LINE) {
        emu_detail::expect_block<kThreads>(emu_line);
        const int rank = int(::emu::current->rank), warp = rank / 32, left = valid - warp * 32;
        value = emu_detail::warp_reduce(value, combine, 32, left < 0 ? 0 : left, emu_line);
        if (rank % 32 == 0) storage_.warps[warp] = value;
        __syncthreads(emu_line);
        if (rank != 0) return emu_detail::undefined<T>();
        for (int i = 1; i < kWarps && i * 32 < valid; i++) value = combine(value, storage_.warps[i]);
        return value;
    }
    template <class F>
    T Reduce(T value, F combine, EMU_LINE) { return Reduce(value, combine, kThreads, emu_line); }
    template <int N, class F>
    T Reduce(T (&values)[N], F combine, EMU_LINE) {
        T total = values[0];
        for (int i = 1; i < N; i++) total = combine(total, values[i]);
        return Reduce(total, combine, kThreads, emu_line);
    }
    T Sum(T value, EMU_LINE) { return Reduce(value, cub::Sum(), kThreads, emu_line); }
    T Sum(T value, int valid, EMU_LINE) { return Reduce(value, cub::Sum(), valid, emu_line); }
    template <int N>
    T Sum(T (&values)[N], EMU_LINE) { return Reduce(values, cub::Sum(), emu_line); }

private:
    TempStorage& storage_;
};

template <class T, int X, BlockScanAlgorithm = BLOCK_SCAN_RAKING, int Y = 1, int Z = 1, int = 0>
class BlockScan {
    static constexpr int kThreads = X * Y * Z, kWarps = (kThreads + 31) / 32;
    // A functor that takes the block's total and gives what goes before its first value.
    template <class P>
    using Prefix = std::enable_if_t<std::is_invocable_r_v<T, P&, T>, int>;

public:
    struct TempStorage {
        T warps[kWarps];
        T prefix;
    };
    explicit BlockScan(TempStorage& storage) : storage_(storage) {}

    template <class F>
    void InclusiveScan(T value, T& result, F combine, T& total, EMU_LINE) {
        result = scan(value, combine, total, emu_line);
    }
    template <class F>
    void InclusiveScan(T value, T& result, F combine, EMU_LINE) {
        T total;
        result = scan(value, combine, total, emu_line);
    }
    template <class F>
    void ExclusiveScan(T value, T& result, T initial, F combine, T& total, EMU_LINE) {
        const T inclusive = scan(value, combine, total, emu_line);
        result = previous(inclusive, initial, combine, emu_line);
    }
    template <class F>
    void ExclusiveScan(T value, T& result, T initial, F combine, EMU_LINE) {
        T total;
        ExclusiveScan(value, result, initial, combine, total, emu_line);
    }
    void InclusiveSum(T value, T& result, EMU_LINE) { InclusiveScan(value, result, cub::Sum(), emu_line); }
    void InclusiveSum(T value, T& result, T& total, EMU_LINE) {
        InclusiveScan(value, result, cub::Sum(), total, emu_line);
    }
    void ExclusiveSum(T value, T& result, EMU_LINE) { ExclusiveScan(value, result, T(0), cub::Sum(), emu_line); }
    void ExclusiveSum(T value, T& result, T& total, EMU_LINE) {
        ExclusiveScan(value, result, T(0), cub::Sum(), total, emu_line);
    }
    template <int N>
    void InclusiveSum(T (&values)[N], T (&results)[N], T& total, EMU_LINE) {
        T own = values[0], before;
        for (int i = 1; i < N; i++) own = own + values[i];
        ExclusiveSum(own, before, total, emu_line);
        for (int i = 0; i < N; i++) results[i] = before = before + values[i];
    }
    template <int N>
    void InclusiveSum(T (&values)[N], T (&results)[N], EMU_LINE) {
        T total;
        InclusiveSum(values, results, total, emu_line);
    }
    template <int N>
    void ExclusiveSum(T (&values)[N], T (&results)[N], T& total, EMU_LINE) {
        T own = values[0], before;
        for (int i = 1; i < N; i++) own = own + values[i];
        ExclusiveSum(own, before, total, emu_line);
        for (int i = 0; i < N; i++) {
            const T value = values[i];
            results[i] = before;
            before = before + value;
        }
    }
    template <int N>
    void ExclusiveSum(T (&values)[N], T (&results)[N], EMU_LINE) {
        T total;
        ExclusiveSum(values, results, total, emu_line);
    }

    // With an operator over several values of a thread.
    template <int N, class F>
    void InclusiveScan(T (&values)[N], T (&results)[N], F combine, T& total, EMU_LINE) {
        const T inclusive = scan(of_thread(values, combine), combine, total, emu_line);
        const T before = previous(inclusive, inclusive, [](const T&, const T& left) { return left; }, emu_line);
        T upto = ::emu::current->rank ? combine(before, values[0]) : values[0];
        results[0] = upto;
        for (int i = 1; i < N; i++) results[i] = upto = combine(upto, values[i]);
    }
    template <int N, class F>
    void InclusiveScan(T (&values)[N], T (&results)[N], F combine, EMU_LINE) {
        T total;
        InclusiveScan(values, results, combine, total, emu_line);
    }
    template <int N, class F>
    void ExclusiveScan(T (&values)[N], T (&results)[N], T initial, F combine, T& total, EMU_LINE) {
        T before;
        ExclusiveScan(of_thread(values, combine), before, initial, combine, total, emu_line);
        spread(values, results, before, combine);
    }
    template <int N, class F>
    void ExclusiveScan(T (&values)[N], T (&results)[N], T initial, F combine, EMU_LINE) {
        T total;
        ExclusiveScan(values, results, initial, combine, total, emu_line);
    }

    // With a prefix: all of the first warp call it with the block's total, and what lane 0 gets goes before all values.
    template <class F, class P, Prefix<P> = 0>
    void InclusiveScan(T value, T& result, F combine, P& prefix, EMU_LINE) {
        T total;
        value = scan(value, combine, total, emu_line);
        result = combine(from_prefix(prefix, total, emu_line), value);
    }
    template <class F, class P, Prefix<P> = 0>
    void ExclusiveScan(T value, T& result, F combine, P& prefix, EMU_LINE) {
        T total;
        const T inclusive = scan(value, combine, total, emu_line);
        result = previous(inclusive, from_prefix(prefix, total, emu_line), combine, emu_line);
    }
    template <int N, class F, class P, Prefix<P> = 0>
    void InclusiveScan(T (&values)[N], T (&results)[N], F combine, P& prefix, EMU_LINE) {
        T upto;
        ExclusiveScan(of_thread(values, combine), upto, combine, prefix, emu_line);
        for (int i = 0; i < N; i++) results[i] = upto = combine(upto, values[i]);
    }
    template <int N, class F, class P, Prefix<P> = 0>
    void ExclusiveScan(T (&values)[N], T (&results)[N], F combine, P& prefix, EMU_LINE) {
        T before;
        ExclusiveScan(of_thread(values, combine), before, combine, prefix, emu_line);
        spread(values, results, before, combine);
    }
    template <class P, Prefix<P> = 0>
    void InclusiveSum(T value, T& result, P& prefix, EMU_LINE) {
        InclusiveScan(value, result, cub::Sum(), prefix, emu_line);
    }
    template <class P, Prefix<P> = 0>
    void ExclusiveSum(T value, T& result, P& prefix, EMU_LINE) {
        ExclusiveScan(value, result, cub::Sum(), prefix, emu_line);
    }
    template <int N, class P, Prefix<P> = 0>
    void InclusiveSum(T (&values)[N], T (&results)[N], P& prefix, EMU_LINE) {
        InclusiveScan(values, results, cub::Sum(), prefix, emu_line);
    }
    template <int N, class P, Prefix<P> = 0>
    void ExclusiveSum(T (&values)[N], T (&results)[N], P& prefix, EMU_LINE) {
        ExclusiveScan(values, results, cub::Sum(), prefix, emu_line);
    }

private:
    template <int N, class F>
    static T of_thread(const T (&values)[N], F combine) {
        T own = values[0];
        for (int i = 1; i < N; i++) own = combine(own, values[i]);
        return own;
    }
    template <int N, class F>
    static void spread(T (&values)[N], T (&results)[N], T before, F combine) {  // the two may be one
        for (int i = 0; i < N; i++) {
            const T value = values[i];
            results[i] = before;
            before = combine(before, value);
        }
    }
    template <class P>
    T from_prefix(P& prefix, T total, ::emu::Line line) {
        const unsigned rank = ::emu::current->rank;
        if (rank < 32) {
            const T before = prefix(total);
            if (rank == 0) storage_.prefix = before;
        }
        __syncthreads(line);
        return storage_.prefix;
    }
    template <class F>
    T scan(T value, F combine, T& total, ::emu::Line line) {
        emu_detail::expect_block<kThreads>(line);
        const unsigned rank = ::emu::current->rank, warp = rank / 32;
        value = emu_detail::warp_scan(value, combine, 32, line);
        if (rank % 32 == 31 || rank == kThreads - 1) storage_.warps[warp] = value;
        __syncthreads(line);
        T before = storage_.warps[0];
        for (unsigned i = 1; i < warp; i++) before = combine(before, storage_.warps[i]);
        if (warp) value = combine(before, value);
        total = storage_.warps[0];
        for (int i = 1; i < kWarps; i++) total = combine(total, storage_.warps[i]);
        return value;
    }
    template <class F>
    T previous(T inclusive, T initial, F combine, ::emu::Line line) {
        const unsigned rank = ::emu::current->rank, lane = rank % 32;
        const T left = ::emu::exchange(::emu::live_lanes(), inclusive, int(lane ? lane - 1 : 0), line);
        __syncthreads(line);
        if (lane == 31 || rank == kThreads - 1) storage_.warps[rank / 32] = inclusive;
        __syncthreads(line);
        if (rank == 0) return initial;
        return combine(initial, lane ? left : storage_.warps[rank / 32 - 1]);
    }
    TempStorage& storage_;
};

// ---- moving tiles: each thread ends with consecutive items, however they travel
template <int, class Input, class T, int N>
inline void LoadDirectStriped(int thread, Input from, T (&items)[N]) {
    const int threads = int(::emu::block_threads());
    for (int i = 0; i < N; i++) items[i] = from[thread + i * threads];
}
template <class Input, class T, int N>
inline void LoadDirectBlocked(int thread, Input from, T (&items)[N]) {
    for (int i = 0; i < N; i++) items[i] = from[thread * N + i];
}
template <class Output, class T, int N>
inline void StoreDirectBlocked(int thread, Output to, T (&items)[N]) {
    for (int i = 0; i < N; i++) to[thread * N + i] = items[i];
}

template <class T, int X, int N, BlockLoadAlgorithm A = BLOCK_LOAD_DIRECT, int Y = 1, int Z = 1, int = 0>
class BlockLoad {
    static constexpr int kThreads = X * Y * Z;

public:
    struct TempStorage {
        char unused;
    };
    BlockLoad() = default;
    explicit BlockLoad(TempStorage&) {}
    template <class Input>
    void Load(Input from, T (&items)[N], EMU_LINE) { load(from, items, kThreads * N, nullptr, emu_line); }
    template <class Input>
    void Load(Input from, T (&items)[N], int valid, EMU_LINE) { load(from, items, valid, nullptr, emu_line); }
    template <class Input, class Other>
    void Load(Input from, T (&items)[N], int valid, Other otherwise, EMU_LINE) {
        const T value = static_cast<T>(otherwise);
        load(from, items, valid, &value, emu_line);
    }

private:
    template <class Input>
    void load(Input from, T (&items)[N], int valid, const T* otherwise, ::emu::Line line) {
        emu_detail::expect_block<kThreads>(line);
        const int rank = int(::emu::current->rank);
        for (int i = 0; i < N; i++) {
            const int at = A == BLOCK_LOAD_STRIPED ? rank + i * kThreads : rank * N + i;
            if (at < valid) items[i] = from[at];
            else if (otherwise) items[i] = *otherwise;
        }
        if (A == BLOCK_LOAD_TRANSPOSE) __syncthreads(line);
    }
};

template <class T, int X, int N, BlockStoreAlgorithm A = BLOCK_STORE_DIRECT, int Y = 1, int Z = 1, int = 0>
class BlockStore {
    static constexpr int kThreads = X * Y * Z;

public:
    struct TempStorage {
        char unused;
    };
    BlockStore() = default;
    explicit BlockStore(TempStorage&) {}
    template <class Output>
    void Store(Output to, T (&items)[N], int valid, EMU_LINE) {
        emu_detail::expect_block<kThreads>(emu_line);
        const int rank = int(::emu::current->rank);
        if (A == BLOCK_STORE_TRANSPOSE) __syncthreads(emu_line);
        for (int i = 0; i < N; i++) {
            const int at = A == BLOCK_STORE_STRIPED ? rank + i * kThreads : rank * N + i;
            if (at < valid) to[at] = items[i];
        }
    }
    template <class Output>
    void Store(Output to, T (&items)[N], EMU_LINE) { Store(to, items, kThreads * N, emu_line); }
};
}  // namespace cub
