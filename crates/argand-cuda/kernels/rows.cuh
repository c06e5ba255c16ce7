// Rows of features and of what they are made from: shared by the fused kernels, whose `Arguments` name these fields alike.
#pragma once
#include "common.cuh"

// What one factor reads.
struct Source {
    const void* x;
    i64 stride;
    int columns;
    // sqrt(nu), or zero if there is no constant column.
    float root_coef0;
};

template <typename Arguments>
DEVICE char* row_of(const Arguments& args, i64 row) {
    return (char*)args.out + row * args.stride * (args.out_element == F32 ? 4 : 2);
}

// The first number that a type of 16 bits has no room for.
DEVICE float too_large(int element) { return element == F16 ? 65520.0f : 3.3961775e38f; }

DEVICE float not_a_number() { return __int_as_float(0x7fffffff); }

// Asks for rows, to be in the second-level cache when they are needed. Some threads share the work.
template <int ROWS, typename Arguments>
DEVICE void prefetch(const Arguments& args, i64 row, int thread, int threads) {
    const int tables = args.distinct ? args.factors : 1, bytes = args.element == F32 ? 4 : 2;
    for (int table = 0; table < tables; table++) {
        const Source source = args.sources[table];
#pragma unroll
        for (int which = 0; which < ROWS; which++) {
            if (row + which >= args.rows) break;
            const char* from = (const char*)source.x + (row + which) * source.stride * bytes;
            for (int at = thread * 128; at < source.columns * bytes; at += threads * 128) {
                asm volatile("prefetch.global.L2 [%0];" ::"l"(from + at));
            }
        }
    }
}
