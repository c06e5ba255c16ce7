// Groups of rows in parts, for pooled features: where parts begin, and the sums of groups from those of their parts.
//
// Bound: device memory. The sums of all parts are read once.
#include "common.cuh"

// Cuts groups with room for four parts into parts of at most `length` rows, so that there are enough of them to keep a device busy: group g has
// the parts from first[g] = starts[g] / length + g to first[g + 1], some of which may be empty. There are rows / length + groups parts in all.
extern "C" __global__ void split_groups(const i64* starts, i64 groups, i64 length, i64* first, i64* parts) {
    for (i64 group = blockIdx.x; group < groups; group += gridDim.x) {
        const i64 begin = starts[group], end = starts[group + 1];
        const i64 from = begin / length + group, to = end / length + group + 1;
        const i64 rows = end - begin < 4 * length ? end - begin : length;
        for (i64 part = from + threadIdx.x; part < to; part += blockDim.x) parts[part] = min(begin + (part - from) * rows, end);
        if (threadIdx.x == 0) {
            first[group] = from;
            if (group == groups - 1) {
                first[groups] = to;
                parts[to] = end;
            }
        }
    }
}

// The sums of groups from those of their parts. Records the first row of a group whose sum does not fit.
extern "C" __global__ void sum_parts(const float* sums, int columns, const i64* first, const i64* starts, void* out, int element, i64 stride,
                                     i64 groups, u64* bad_row) {
    for (i64 at = (i64)blockIdx.x * blockDim.x + threadIdx.x; at < groups * columns; at += (i64)gridDim.x * blockDim.x) {
        const i64 group = at / columns;
        double sum = 0;
        for (i64 part = first[group]; part < first[group + 1]; part++) sum += (double)sums[part * columns + at % columns];
        write<float>(out, element, group * stride + at % columns, (float)sum);
        if (!fits<float>(element, (float)sum)) atomicMin(bad_row, (u64)starts[group]);
    }
}
